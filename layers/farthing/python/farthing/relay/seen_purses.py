"""What purses held when this process last looked, less what it has drawn since.

A purse that has enough by this is not looked at again before each event. It may be wrong: others
draw too. Then the draw is refused by its own condition, and the purse is looked at after all.
"""

from farthing.context import Agent

_MOST = 10_000


class SeenPurses:
    def __init__(self) -> None:
        self._left: dict[str, int] = {}

    def note(self, key: str, left: int) -> None:
        if len(self._left) >= _MOST:
            self._left = {}  # at worst, each is looked at once more
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
