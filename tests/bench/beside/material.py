"""The events and filters that every relay of a comparison gets: signed once a run, then reused."""

import random
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import orjson

from farthing.nostr.events import public_key_of, sign_event
from tests.bench.notes import author_secret

_SEED = 18
_EVENTS_OF_AN_AUTHOR = 500
KINDS, _SHARES = (1, 7, 1111), (85, 10, 5)
_FEED_OF = 50  # authors, of 200
_FEEDS = 200
_IDS = 2000
_EVERYTHING = 10  # of the subscriptions, beside one for each author
_TEXT = "the quick brown fox jumps over the lazy dog and says so, note %d"
RESULTS = 100

Filter = dict[str, Any]
Draft = tuple[int, int, int, list[list[str]], str]  # author, kind, time, tags, content


@dataclass(frozen=True, slots=True)
class Signed:
    id: str
    created_at: int
    author: int
    message: bytes


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is stored, published and asked for."""

    stored: int
    ingested: int  # into a fresh folder, in each round
    published: int  # one at a time, in each round
    rounds: int
    alone: int  # requests of a single client
    each: int  # requests of each of the 16
    lookups: int  # the same, by id
    subscribers: int
    fanned_out: int  # at a steady rate, and as many in a burst

    @property
    def authors(self) -> int:
        return self.stored // _EVENTS_OF_AN_AUTHOR


FULL = Scale(100_000, 20_000, 300, 3, 300, 60, 500, 1000, 1000)
QUICK = Scale(10_000, 2_000, 50, 1, 40, 10, 50, 100, 100)


class Material:
    def __init__(self, scale: Scale, warm_up: int) -> None:
        self.scale = scale
        self._randomness = random.Random(_SEED)
        self._now = int(time.time())
        spare = warm_up + scale.ingested + scale.published
        fans = 2 * scale.rounds * scale.fanned_out
        drafts = [*self._stored(), *self._later(spare, scale.authors),
                  *self._later(fans, scale.subscribers)]  # fmt: skip
        signed = sign_all(drafts)
        self.stored = signed[: scale.stored]
        self.spare = signed[scale.stored : scale.stored + spare]
        self._fans = signed[scale.stored + spare :]

    def _stored(self) -> Iterator[Draft]:
        """One a second, until an hour ago."""
        number, randomness = self.scale.stored, self._randomness
        for each in range(number):
            (kind,) = randomness.choices(KINDS, _SHARES)
            who = randomness.randrange(self.scale.authors)
            yield who, kind, self._now - 3600 - number + each, self._tags(), _TEXT % each

    def _later(self, number: int, authors: int) -> Iterator[Draft]:
        for each in range(number):
            yield each % authors, 1, self._now - 3000 + each // 20, self._tags(), _TEXT % each

    def _tags(self) -> list[list[str]]:
        mentioned = pubkey(self._randomness.randrange(self.scale.authors))
        return [["e", self._randomness.randbytes(32).hex()], ["p", mentioned]]

    def fans(self, turn: int, *, burst: bool) -> list[Signed]:
        """Each of them is published once only: relays pass on nothing twice."""
        start = (2 * turn + burst) * self.scale.fanned_out
        return self._fans[start : start + self.scale.fanned_out]

    def subscriptions(self) -> list[Filter]:
        """One for each author and a few for everything, with few stored events."""
        by_author = [{"authors": [pubkey(who)]} for who in range(self.scale.subscribers)]
        return [{**each, "limit": 1} for each in (*by_author, *({},) * _EVERYTHING)]

    def deliveries(self, events: Sequence[Signed]) -> int:
        followed = sum(event.author < self.scale.subscribers for event in events)
        return followed + _EVERYTHING * len(events)

    def filters(self) -> dict[str, list[Filter]]:
        authors = [pubkey(who) for who in range(self.scale.authors)]
        some = min(_FEED_OF, len(authors) // 2)
        shuffled = self._randomness.sample(authors, len(authors))
        by_name: dict[str, list[Filter]] = {
            "author+kind": [{"authors": [who], "kinds": [1]} for who in shuffled],
            "tag": [{"#p": [who]} for who in shuffled],
            "kind": [{"kinds": [kind]} for kind in KINDS],
            "everything": [{}],
            "feed": [
                {"authors": self._randomness.sample(authors, some), "kinds": [1, 7]}
                for _ in range(_FEEDS)
            ],
            "id": [
                {"ids": [event.id]}
                for event in self._randomness.sample(self.stored, min(_IDS, len(self.stored)))
            ],
        }
        return {
            name: [each if "ids" in each else {**each, "limit": RESULTS} for each in filters]
            for name, filters in by_name.items()
        }


_PUBKEYS: dict[int, str] = {}


def pubkey(author: int) -> str:
    if author not in _PUBKEYS:
        _PUBKEYS[author] = public_key_of(author_secret(author))
    return _PUBKEYS[author]


def sign_all(drafts: Sequence[Draft]) -> list[Signed]:
    """On all cores."""
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        return list(pool.map(_signed, drafts, chunksize=500))


def _signed(draft: Draft) -> Signed:
    author, kind, created_at, tags, content = draft
    event = sign_event(
        author_secret(author), kind=kind, content=content, created_at=created_at, tags=tags
    )
    return Signed(event.id, event.created_at, author, b'["EVENT",%b]' % event.to_json().encode())


def text(filter: Filter) -> str:
    return orjson.dumps(filter).decode()
