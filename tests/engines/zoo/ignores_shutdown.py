"""Ignores shutdown, exit, the end of its input and SIGTERM; leaves a child in another session that does the same."""

import os
import signal
import sys
import time
from pathlib import Path

from base import Server

for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)


class Stubborn(Server):
    def on_shutdown(self, params):
        return self.NOTHING

    def on_exit(self, params):
        return None


if os.fork() == 0:
    os.setsid()
    if os.fork() != 0:
        os._exit(0)
    null = os.open("/dev/null", os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    Path(sys.argv[1]).write_text(str(os.getpid()))
    while True:
        time.sleep(60)
os.wait()
Stubborn().run()
while True:
    time.sleep(60)
