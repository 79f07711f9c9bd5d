"""A proxy before a real server that holds each answer back for a random while, keeping their order.

usage: delaying.py SEED LONGEST_S PROGRAM [ARGUMENT...]
"""

import random
import subprocess
import sys
import threading
import time


def main() -> None:
    seed, longest_s, *command = sys.argv[1:]
    chance = random.Random(int(seed))
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def forward() -> None:
        while data := sys.stdin.buffer.raw.read(1 << 16):
            server.stdin.write(data)
            server.stdin.flush()
        server.stdin.close()

    threading.Thread(target=forward, daemon=True).start()
    while True:
        header = b""
        while not header.endswith(b"\r\n\r\n"):
            byte = server.stdout.read(1)
            if not byte:
                sys.exit(server.wait())
            header += byte
        length = next(
            int(line.split(b":")[1]) for line in header.split(b"\r\n") if line.lower().startswith(b"content-length")
        )
        body = server.stdout.read(length)
        if b'"result"' in body[:200] or b'"error"' in body[:200]:
            time.sleep(chance.random() * float(longest_s))
        sys.stdout.buffer.write(header + body)
        sys.stdout.buffer.flush()


main()
