"""Numbers events in the commit that stores them, on one machine, which saves a second commit. The
numbers are those of `changes`, with the same guarantees.

Events that another process has stored, for example an import, have no number yet. They come from
the stream and are numbered in the next commit.
"""

import threading
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from farthing.store.changes import Arrival, ChangeLog
from farthing.store.events import space_of
from farthing.store.spaces import Space
from farthing.store.sqlite_transactions import Place, State, Stored
from farthing.store.table import Contended, Engine, StoreError, Table

# The number of events that are remembered as numbered until their stream records come.
_REMEMBERED = 100_000


class Committing(Engine, Protocol):
    """An engine that can be joined in its commits."""

    def accompany(self, companion: "Numbering") -> None: ...

    def flush(self) -> None: ...


class Numbering:
    def __init__(self, engine: Committing) -> None:
        self._engine = engine
        self._mutex = threading.Lock()
        self._late: list[tuple[Space[Any], Arrival]] = []
        # Events that were numbered here and have not come through the stream yet.
        self._numbered: set[tuple[str, str]] = set()
        self._joined: list[tuple[str, str]] = []
        # The number that each space's counter probably has: that of the last commit here.
        self._expected: dict[str, int] = {}
        engine.accompany(self)

    def number(self, arrivals: Sequence[Arrival], space: Space[Any]) -> int:
        """Number the events that have no number. Returns how many got a number."""
        with self._mutex:
            waiting = [each for each in arrivals if (space.name, each.id) not in self._numbered]
            self._numbered.difference_update((space.name, each.id) for each in arrivals)
        if not waiting:
            return 0
        log = ChangeLog(self._engine, space)
        known = log.numbers_of(arrival.id for arrival in waiting)
        late = [arrival for arrival in waiting if arrival.id not in known]
        if not late:
            return 0
        with self._mutex:
            self._late.extend((space, arrival) for arrival in late)
        self._engine.flush()
        if len(log.numbers_of(arrival.id for arrival in late)) < len({each.id for each in late}):
            raise Contended("the commit with the numbers of the events has failed")
        return len(late)

    def join(self, state: State) -> None:
        """Number the events among a group of changes, in the commit that writes the group."""
        with self._mutex:
            late, self._late = self._late, []
        new: dict[Space[Any], dict[str, Arrival]] = {}
        for space, arrival in late:
            new.setdefault(space, {})[arrival.id] = arrival
        for place, old, stored in state.changes:
            its_space = None if stored is None else _space_of_new(place, old)
            if stored is not None and its_space is not None:
                item = stored.item
                if "j" in item:
                    event_id = place[1].removeprefix(its_space.prefix)
                    arrival = Arrival(event_id, item["p"], item["k"])
                    new.setdefault(its_space, {})[event_id] = arrival
        self._joined = [
            (space.name, event_id) for space, arrivals in new.items() for event_id in arrivals
        ]
        for space, arrivals in new.items():
            self._number(state, space, arrivals.values())

    def committed(self) -> None:
        with self._mutex:
            if len(self._numbered) > _REMEMBERED:  # nothing reads the stream
                self._numbered.clear()
            self._numbered.update(self._joined)

    def _number(self, state: State, space: Space[Any], arrivals: Iterable[Arrival]) -> None:
        """Number events. No other writer can write meanwhile, so everything that is read here stays
        valid until the commit."""
        log = ChangeLog(self._engine, space)
        keys = {log.id_key(arrival.id): arrival for arrival in arrivals}
        following = log.chunk_key(self._expected.get(space.name, 0))
        # One statement reads all, and also what should not be there: a chunk behind the counter.
        standing = state.items(Table.CHANGES, [log.counter_key, following, *keys])
        waiting = [arrival for key, arrival in keys.items() if key not in standing]
        last = log.number_in(standing.get(log.counter_key))
        for counter, chunk, *entries in log.chunks(last, waiting):
            key = chunk[1:3]
            if key in standing if key == following else state.items(Table.CHANGES, [key]):
                raise StoreError(f"the log of {space.name} goes on behind its counter")
            state.put_small(Table.CHANGES, [counter, *entries])
            state.add(chunk)
        self._expected[space.name] = last + len(waiting)


def _space_of_new(place: Place, old: Stored | None) -> Space[Any] | None:
    """The space of a new event in the table; None if the event was there before."""
    table, pk, sk = place
    if table is not Table.EVENTS or (old is not None and "j" in old.item):
        return None
    return space_of(pk, sk)
