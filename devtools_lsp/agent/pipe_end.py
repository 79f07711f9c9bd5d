"""Our end of one output of a program: read as it comes, without ever holding up the loop.

Owns the two descriptors. When to look, and what the bytes mean, is the business of whoever reads.
"""

from __future__ import annotations

import os

CHUNK_BYTES = 64 * 1024
"""Read and passed on at once: a few milliseconds of the loop."""


class PipeEnd:
    """A pipe. `writer` is the descriptor to start the program with, `reader` ours; either is -1 once given up."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.reader, False)

    def started(self) -> None:
        """The program has its own copy of the writing end: give up ours."""
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    def close(self) -> None:
        """Give up both ends; nobody who still holds the other one is waited for."""
        self.started()
        if self.reader >= 0:
            os.close(self.reader)
            self.reader = -1

    def read(self) -> bytes | None:
        """What is there, `CHUNK_BYTES` at most; empty at the end, None when there is nothing yet."""
        try:
            return os.read(self.reader, CHUNK_BYTES)
        except BlockingIOError:
            return None
