"""The checkpoint of each stream, kept in the database: a backup holds events and checkpoints of the
same moment."""

from dataclasses import asdict, dataclass
from hashlib import sha256

import orjson

from farthing.nostr.filters import Filter
from farthing.store.table import Engine, Put, Table

_STREAMS = "streams"
_DIGITS = 32  # of a filter's hash


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Everything up to this point has been exchanged. None if nothing has."""

    number: int | None = None  # in the changes feed: the relay's if we read, ours if we send
    time: int | None = None  # if the relay has no numbers: when the last read began


class Checkpoints:
    """The stored checkpoint of one direction, relay and filter."""

    def __init__(self, engine: Engine, direction: str, url: str, filter: Filter) -> None:
        self._engine = engine
        digest = sha256(orjson.dumps(filter.as_dict())).hexdigest()[:_DIGITS]
        self._key = f"{direction}#{digest}#{url}"

    def get(self) -> Checkpoint:
        item = self._engine.get(Table.LEDGER, _STREAMS, self._key)
        return Checkpoint() if item is None else Checkpoint(**item)

    def keep(self, checkpoint: Checkpoint) -> None:
        self._engine.write(Put(Table.LEDGER, _STREAMS, self._key, asdict(checkpoint)))
