"""Moves a directory away, puts a link to outside in its place, and back, until its standard input closes.

Run by the attack tests. Whoever makes a directory under the free name in between finds it moved aside.
"""

from __future__ import annotations

import os
import select
import sys


class Renamer:
    def __init__(self, name: str, target: str) -> None:
        self.name = name
        self.target = target
        self.intruders = 0

    def turn(self) -> None:
        os.rename(self.name, f"{self.name}.away")
        self.insist(lambda: os.symlink(self.target, self.name))
        os.unlink(self.name)
        self.insist(lambda: os.rename(f"{self.name}.away", self.name))

    def insist(self, step) -> None:
        while True:
            try:
                step()
            except OSError:
                os.rename(self.name, f"{self.name}.{self.intruders}")
                self.intruders += 1
            else:
                return


def main() -> None:
    directory, name, target = sys.argv[1:4]
    os.chdir(directory)
    renamer = Renamer(name, target)
    print("ready", flush=True)
    count = 0
    while not (count % 64 == 0 and select.select([0], [], [], 0)[0]):
        renamer.turn()
        count += 1
    print(count, flush=True)


main()
