"""Exchanges two names of a directory as fast as it can until its standard input closes: run by the attack tests."""

from __future__ import annotations

import ctypes
import os
import select
import sys

RENAME_EXCHANGE = 2


def main() -> None:
    directory = os.open(sys.argv[1], os.O_RDONLY)
    first, second = (name.encode() for name in sys.argv[2:4])
    exchange = ctypes.CDLL(None, use_errno=True).renameat2
    print("ready", flush=True)
    count = 0
    while not (count % 256 == 0 and select.select([0], [], [], 0)[0]):
        exchange(directory, first, directory, second, RENAME_EXCHANGE)
        count += 1
    if count % 2:
        exchange(directory, first, directory, second, RENAME_EXCHANGE)
    print(count, flush=True)


main()
