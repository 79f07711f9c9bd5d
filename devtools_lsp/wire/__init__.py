"""Messages and framing of the socket: JSON-RPC 2.0 with Content-Length."""
