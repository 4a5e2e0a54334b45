"""The state of each relay at which followed keys are read: the checkpoint and the last failure."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

from farthing.store.table import Add, Engine, Put, Query, Table, read_all

_FEEDS = "feeds"
_COUNTS = "feed-counts"


@dataclass(frozen=True, slots=True)
class FeedState:
    """The state of one relay. All events of `authors` up to `number` and `time` have been read."""

    url: str
    number: int = 0  # of the relay's own changes feed
    time: int = 0  # when the last complete round began
    behind: int = 0  # where reading the past was interrupted: older events are still to be read
    authors: list[str] = field(default_factory=list)  # first digits of their keys
    profiles: int = 0  # when replaceable events were last read
    way: str = ""  # the last method of catching up: changes, negentropy or req
    failures: int = 0  # in a row
    trouble: str = ""  # the text of the last failure
    not_before: int = 0  # when the relay may be tried again


@dataclass(frozen=True, slots=True)
class FeedCounts:
    """The counts of a relay since its first reading."""

    events: int = 0  # events of followed keys with a valid signature
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
