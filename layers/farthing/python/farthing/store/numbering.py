"""Numbers events in the commit that stores them, on one machine: a second commit is saved. The
numbers are those of `changes`, with the same guarantees.

Events that another process has stored, an import say, have none yet. They come from the stream and
are numbered in the next commit.
"""

import threading
from collections.abc import Sequence
from typing import Any, Protocol

from farthing.store.changes import Arrival, ChangeLog
from farthing.store.events import space_of
from farthing.store.spaces import Space
from farthing.store.sqlite_transactions import Place, State, Stored
from farthing.store.table import Contended, Engine, Table, TransactWrite


class Committing(Engine, Protocol):
    """An engine that can be joined in its commits."""

    def accompany(self, companion: "Numbering") -> None: ...

    def flush(self) -> None: ...


class Numbering:
    def __init__(self, engine: Committing) -> None:
        self._engine = engine
        self._mutex = threading.Lock()
        self._late: list[tuple[Space[Any], Arrival]] = []
        engine.accompany(self)

    def number(self, arrivals: Sequence[Arrival], space: Space[Any]) -> int:
        """Number those of the events that have no number. How many those were."""
        log = ChangeLog(self._engine, space)
        known = log.numbers_of(arrival.id for arrival in arrivals)
        late = [arrival for arrival in arrivals if arrival.id not in known]
        if not late:
            return 0
        with self._mutex:
            self._late.extend((space, arrival) for arrival in late)
        self._engine.flush()
        if len(log.numbers_of(arrival.id for arrival in late)) < len({each.id for each in late}):
            raise Contended("the commit that was to number the events has failed")
        return len(late)

    def writes(self, state: State) -> list[list[TransactWrite]]:
        """What has to be written with a group of changes, as transactions one after another."""
        with self._mutex:
            late, self._late = self._late, []
        new: dict[Space[Any], dict[str, Arrival]] = {}
        for space, arrival in late:
            new.setdefault(space, {})[arrival.id] = arrival
        for place, old, encoded in state.changes:
            its_space = None if encoded is None else _space_of_new(place, old)
            if encoded is not None and its_space is not None:
                item = Stored(encoded).item
                if "j" in item:
                    event_id = place[1].removeprefix(its_space.prefix)
                    arrival = Arrival(event_id, item["p"], item["k"])
                    new.setdefault(its_space, {})[event_id] = arrival
        return [
            writes
            for space, arrivals in new.items()
            for writes in self._writes(state, space, list(arrivals.values()))
        ]

    def _writes(
        self, state: State, space: Space[Any], arrivals: list[Arrival]
    ) -> list[list[TransactWrite]]:
        log = ChangeLog(self._engine, space)
        keys = {log.id_key(arrival.id): arrival for arrival in arrivals}
        standing = state.items(Table.CHANGES, [log.counter_key, *keys])
        waiting = [arrival for key, arrival in keys.items() if key not in standing]
        return log.chunks(log.number_in(standing.get(log.counter_key)), waiting)


def _space_of_new(place: Place, old: bytes | None) -> Space[Any] | None:
    """The space of an event that has come into the table; None if it stood there before."""
    table, pk, sk = place
    if table is not Table.EVENTS or (old is not None and "j" in Stored(old).item):
        return None
    return space_of(pk, sk)
