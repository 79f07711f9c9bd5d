"""The long-running process: connections, editors, approvals, watching."""
