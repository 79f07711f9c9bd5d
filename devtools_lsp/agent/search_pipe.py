"""Reading what a program prints without being woken for each of its writes.

ripgrep writes once for every file that matches. A reader that waits in the kernel is woken as often, and what that
costs both of them exceeds the search; so this one takes what there is and then looks away for a moment, unless the
program ends. Knows nothing of what it reads.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
from collections.abc import Callable

from devtools_lsp.agent.pipe_end import CHUNK_BYTES, PipeEnd

_CAPACITY = 1024 * 1024
"""Asked for, so that a program need not wait for a reader that looks away; what a pipe is given by itself will do."""

LOOK_AWAY_S = 0.004
"""Long enough for many small writes, too short to be noticed."""


class Pipe(PipeEnd):
    """One output of a program that writes often."""

    def __init__(self) -> None:
        super().__init__()
        resize: int | None = getattr(fcntl, "F_SETPIPE_SZ", None)
        if resize is not None:
            # Refused to a user whose pipes hold much already.
            with contextlib.suppress(OSError):
                fcntl.fcntl(self.writer, resize, _CAPACITY)

    async def drain(
        self, take: Callable[[bytes], None], ended: asyncio.Future[int], *, look_away_s: float = LOOK_AWAY_S
    ) -> None:
        """Pass on everything until the other end is closed, or until `ended` is done and nothing is left.

        `look_away_s` 0 is for a program that gathers its output itself.
        """
        loop = asyncio.get_running_loop()
        woken = asyncio.Event()

        def wake(_: object = None) -> None:
            woken.set()

        ended.add_done_callback(wake)
        try:
            while True:
                loop.add_reader(self.reader, wake)
                await woken.wait()
                loop.remove_reader(self.reader)
                woken.clear()
                # Asked before the last look: whatever the program printed is in the pipe by then.
                last = ended.done()
                while data := self.read():
                    take(data)
                    await asyncio.sleep(0)
                    if len(data) < CHUNK_BYTES and not last:
                        break
                if last or data == b"":
                    return
                if look_away_s:
                    await asyncio.wait({ended}, timeout=look_away_s)
        finally:
            loop.remove_reader(self.reader)
            ended.remove_done_callback(wake)
