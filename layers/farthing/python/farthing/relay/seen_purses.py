"""The balances of purses at this process's last read, less its own draws since then.

If a remembered balance suffices, the purse is not read again for the next event. The balance may be
wrong, because other processes draw too. Then the draw's own condition fails, and the purse is read.
"""

from farthing.context import Agent

_MOST = 10_000


class SeenPurses:
    def __init__(self) -> None:
        self._left: dict[str, int] = {}

    def note(self, key: str, left: int) -> None:
        if len(self._left) >= _MOST:
            self._left = {}  # each purse is then read once more
        self._left[key] = left

    def spend(self, key: str, amount: int) -> None:
        if key in self._left:
            self._left[key] -= amount

    def forget(self, key: str) -> None:
        self._left.pop(key, None)

    def has(self, key: str, amount: int) -> bool:
        return self._left.get(key, 0) >= amount


def seen_purses(agent: Agent) -> SeenPurses:
    return agent.part(_seen_purses)


def _seen_purses(_agent: Agent) -> SeenPurses:
    return SeenPurses()
