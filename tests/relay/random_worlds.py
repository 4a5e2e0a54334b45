"""Random events and filters over alphabets so small that they meet often."""

import random
from collections.abc import Sequence
from typing import Any

from farthing.nostr.events import Event
from tests.relay.world import START, hex_id, made

AUTHORS = [letter * 64 for letter in "abc"]
STRANGERS = [hex_id(number) for number in range(1000, 1040)]
KINDS = [1, 1, 1, 7, 4, 1059, 0, 10002, 30000, 5]
TIMES = range(START - 3, START + 4)
WORDS = ["x", "y", "z", "w" * 300]


class World:
    def __init__(self, seed: int, size: int, *, wide: bool = True) -> None:
        """`wide`: some filters name so many authors and kinds that the planner changes its way."""
        # Of both: worlds of another size have other events, not other events under the same ids.
        self.dice = random.Random(f"{seed}/{size}")
        self.wide = wide
        self.ids = [f"{self.dice.getrandbits(256):064x}" for _ in range(size)]

    def events(self) -> list[Event]:
        """In the order in which they come, a few of them more than once."""
        events = [self._event(id) for id in self.ids]
        again = self.dice.sample(events, len(events) // 5)
        mixed = [*events, *again]
        self.dice.shuffle(mixed)
        return mixed

    def ghosts(self) -> list[Event]:
        """Events of which only postings are there, as a crash leaves them."""
        return [self._event(f"{self.dice.getrandbits(256):064x}") for _ in range(3)]

    def _event(self, id: str) -> Event:
        kind = self.dice.choice(KINDS)
        return made(
            id=id,
            pubkey=self.dice.choice(AUTHORS),
            kind=kind,
            created_at=self.dice.choice(TIMES),
            tags=self._deletion_tags() if kind == 5 else self._tags(),
        )

    def _tags(self) -> list[list[str]]:
        dice = self.dice
        tags = [
            dice.choice(
                [
                    ["t", dice.choice(WORDS)],
                    ["t", dice.choice(WORDS), "more"],
                    ["e", dice.choice(self.ids)],
                    ["p", dice.choice(AUTHORS)],
                    ["d", dice.choice(WORDS[:2])],
                    ["t"],
                    ["title", "x"],
                ]
            )
            for _ in range(dice.randint(0, 4))
        ]
        if dice.random() < 0.15:
            tags.append(["expiration", str(START + dice.randint(1, 4))])
        return tags

    def _deletion_tags(self) -> list[list[str]]:
        dice = self.dice
        addresses = [(0, ""), (10002, ""), (30000, "x"), (30000, "y"), (30000, "")]
        tags = [["e", dice.choice(self.ids)] for _ in range(dice.randint(0, 3))]
        if dice.random() < 0.5:
            kind, d = dice.choice(addresses)
            tags.append(["a", f"{kind}:{dice.choice(AUTHORS)}:{d}"])
        return tags

    def filters(self) -> list[dict[str, Any]]:
        return [self.filter() for _ in range(self.dice.choice([1, 1, 2, 3]))]

    def filter(self) -> dict[str, Any]:
        dice = self.dice
        choices: dict[str, tuple[float, Any]] = {
            "ids": (0.1, lambda: self._some(self.ids)),
            "authors": (0.35, self._authors),
            "kinds": (0.35, self._kinds),
            "#t": (0.25, lambda: self._some(WORDS)),
            "#e": (0.15, lambda: self._some(self.ids)),
            "#p": (0.15, lambda: self._some(AUTHORS)),
            "since": (0.25, lambda: dice.choice(TIMES)),
            "until": (0.25, lambda: dice.choice(TIMES)),
            "limit": (0.5, lambda: dice.choice([0, 1, 2, 3, 5, 10, 50])),
        }
        return {key: make() for key, (odds, make) in choices.items() if dice.random() < odds}

    def _some(self, values: Sequence[Any]) -> list[Any]:
        fewest = 0 if self.dice.random() < 0.05 else 1
        return self.dice.sample(values, self.dice.randint(fewest, len(values)))

    def _authors(self) -> list[str]:
        return self._some(AUTHORS) + (STRANGERS if self._is_wide() else [])

    def _kinds(self) -> list[int]:
        return self._some(sorted(set(KINDS))) + (list(range(100, 110)) if self._is_wide() else [])

    def _is_wide(self) -> bool:
        return self.wide and self.dice.random() < 0.12
