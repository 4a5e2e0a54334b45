"""The sets of the syncs that this container has answered recently, with a limit on their total
size."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from farthing.nostr.negentropy import SealedVector
from farthing.store.syncs import Sync


@dataclass(slots=True)
class _Kept:
    order: int
    items: SealedVector
    until: int  # second at which the set is dropped if no message of the sync comes


class SealedSets:
    """A set is dropped when its sync or connection ends, after a time without use, or when other
    sets need the space. A dropped set is made again if it is needed."""

    def __init__(self) -> None:
        self._sets: OrderedDict[tuple[str, str], _Kept] = OrderedDict()
        self._mutex = threading.Lock()

    def get(self, sync: Sync, until: int) -> SealedVector | None:
        key = (sync.connection_id, sync.id)
        with self._mutex:
            kept = self._sets.get(key)
            if kept is None or kept.order != sync.order:
                return None
            kept.until = until
            self._sets.move_to_end(key)
            return kept.items

    def put(self, sync: Sync, items: SealedVector, until: int, most: int) -> None:
        """Keep a set. All sets together have at most `most` items, but this set is kept in any
        case."""
        key = (sync.connection_id, sync.id)
        with self._mutex:
            self._sets[key] = _Kept(sync.order, items, until)
            self._sets.move_to_end(key)
            while len(self._sets) > 1 and self._size() > most:
                self._sets.popitem(last=False)

    def _size(self) -> int:
        return sum(len(kept.items) for kept in self._sets.values())

    def forget(self, connection_id: str, sync_id: str) -> None:
        with self._mutex:
            self._sets.pop((connection_id, sync_id), None)

    def forget_connection(self, connection_id: str) -> None:
        self._forget_where(lambda key, _: key[0] == connection_id)

    def forget_idle(self, now: int) -> None:
        self._forget_where(lambda _, kept: kept.until <= now)

    def clear(self) -> None:
        self._forget_where(lambda *_: True)

    def __len__(self) -> int:
        return len(self._sets)

    def _forget_where(self, gone: Callable[[tuple[str, str], _Kept], bool]) -> None:
        with self._mutex:
            for key in [key for key, kept in self._sets.items() if gone(key, kept)]:
                del self._sets[key]


SEALED = SealedSets()
