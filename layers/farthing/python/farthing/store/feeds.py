"""What is known of each relay at which followed keys are read: how far, and what went wrong."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

from farthing.store.table import Add, Engine, Put, Query, Table, read_all

_FEEDS = "feeds"
_COUNTS = "feed-counts"


@dataclass(frozen=True, slots=True)
class FeedState:
    """One relay. Everything of `authors` up to `number` and `time` has been seen."""

    url: str
    number: int = 0  # of the relay's own changes feed
    time: int = 0  # when the last look began that was finished
    behind: int = 0  # where a look at the past was broken off: what is older is still to be read
    authors: list[str] = field(default_factory=list)  # first digits of their keys
    profiles: int = 0  # when the events that replace each other were last asked for
    way: str = ""  # by which we last caught up: changes, negentropy or req
    failures: int = 0  # in a row
    trouble: str = ""  # what the last failure was
    not_before: int = 0  # when the relay may be tried again


@dataclass(frozen=True, slots=True)
class FeedCounts:
    """What a relay has sent, since it was first read."""

    events: int = 0  # of followed keys, with a true signature
    stored: int = 0
    faults: int = 0  # with a wrong signature, author or kind


class Feeds:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def state(self, url: str) -> FeedState:
        item = self._engine.get(Table.LEDGER, _FEEDS, url)
        return FeedState(url) if item is None else FeedState(**item)

    def keep(self, state: FeedState) -> None:
        self._engine.write(Put(Table.LEDGER, _FEEDS, state.url, asdict(state)))

    def states(self) -> Iterator[FeedState]:
        for row in read_all(self._engine, Query(Table.LEDGER, _FEEDS)):
            yield FeedState(**row.item)

    def count(self, url: str, counts: FeedCounts) -> None:
        amounts = {name: number for name, number in asdict(counts).items() if number}
        if amounts:
            self._engine.write(Add(Table.LEDGER, _COUNTS, url, amounts))

    def counts(self, url: str) -> FeedCounts:
        item = self._engine.get(Table.LEDGER, _COUNTS, url)
        return FeedCounts() if item is None else FeedCounts(**item)
