"""A second event format for tests: nanoseconds, tags with long names and several values, filters by
the beginning of a key, and nothing that deletes."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field

import orjson

from farthing.nostr.kinds import Keeping
from farthing.store.spaces import Space

NANOSECONDS = 10**9


@dataclass(frozen=True)
class Tick:
    id: str
    pubkey: str
    created_at: int  # nanoseconds
    kind: int = 1
    tags: tuple[tuple[str, tuple[str, ...]], ...] = ()
    expiration: int | None = None

    @property
    def keeping(self) -> Keeping:
        if 10000 <= self.kind < 20000:
            return Keeping.REPLACEABLE
        if 20000 <= self.kind < 30000:
            return Keeping.EPHEMERAL
        return Keeping.ADDRESSABLE if 30000 <= self.kind < 40000 else Keeping.REGULAR

    @property
    def address(self) -> str | None:
        match self.keeping:
            case Keeping.REPLACEABLE:
                return f"{self.kind}:{self.pubkey}:"
            case Keeping.ADDRESSABLE:
                return f"{self.kind}:{self.pubkey}:{dict(self.tags).get('d', ('',))[0]}"
        return None

    def indexed_tags(self) -> Iterator[tuple[str, str]]:
        return ((key, value) for key, values in self.tags for value in values)

    def to_json(self) -> str:
        return orjson.dumps(asdict(self)).decode()


def parse_tick(text: str) -> Tick:
    fields = orjson.loads(text)
    fields["tags"] = tuple((key, tuple(values)) for key, values in fields["tags"])
    return Tick(**fields)


@dataclass(frozen=True)
class TickFilter:
    ids: frozenset[str] | None = None
    authors: frozenset[str] | None = None  # whole keys, or at least 32 digits of them
    kinds: frozenset[int] | None = None
    tags: Mapping[str, frozenset[str]] = field(default_factory=dict)
    since: int | None = None
    until: int | None = None
    limit: int | None = None

    @property
    def is_of_ids_alone(self) -> bool:
        return self.ids is not None and self == TickFilter(ids=self.ids, limit=self.limit)

    def has_author(self, pubkey: str) -> bool:
        return self.authors is None or any(map(pubkey.startswith, self.authors))

    def matches(self, event: Tick) -> bool:
        return (
            (self.ids is None or event.id in self.ids)
            and self.has_author(event.pubkey)
            and (self.kinds is None or event.kind in self.kinds)
            and (self.since is None or event.created_at >= self.since)
            and (self.until is None or event.created_at <= self.until)
            and self.matches_tags(event)
        )

    def matches_tags(self, event: Tick) -> bool:
        return all(
            any(name == key and value in wanted for name, value in event.indexed_tags())
            for key, wanted in self.tags.items()
        )


TICKS: Space[Tick] = Space("ticks", "x", parse_tick, author_digits=32)
