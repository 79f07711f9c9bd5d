"""What is known about which files in which states: the answers of one server, of the states judged last.

Bounded by the number of states and by that of the findings in them: a linter says tens of thousands of things about a
large file that is no program, and says them anew for every text of it. What was forgotten is asked again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from devtools_lsp.engines.reports import Judged

StateKey = tuple[int, int, frozenset[tuple[str, str]]]
"""The server's generation, the epoch of the disk, and the texts laid over it by path and digest."""


class Baselines:
    """Answers by state and path, of at most `states` states with `findings` findings (about 0.6 KB each) in all.

    The oldest states go first; the newest one stays, however much is said about it.
    """

    def __init__(self, states: int, findings: int) -> None:
        self._limits = states, findings
        self._answers: OrderedDict[StateKey, dict[str, Judged]] = OrderedDict()
        self._findings = 0

    def of(self, key: StateKey) -> Mapping[str, Judged]:
        """All answers of a state; empty where none is known."""
        return self._answers.get(key, {})

    def remember(self, key: StateKey, answers: Mapping[str, Judged]) -> None:
        """Add answers to a state, which becomes the newest one."""
        known = self._answers.setdefault(key, {})
        self._answers.move_to_end(key)
        for path, judged in answers.items():
            self._findings += len(judged.findings)
            if path in known:
                self._findings -= len(known[path].findings)
            known[path] = judged
        states, findings = self._limits
        while len(self._answers) > 1 and (len(self._answers) > states or self._findings > findings):
            _, gone = self._answers.popitem(last=False)
            self._findings -= sum(len(judged.findings) for judged in gone.values())

    def clear(self) -> None:
        """Forget everything."""
        self._answers.clear()
        self._findings = 0
