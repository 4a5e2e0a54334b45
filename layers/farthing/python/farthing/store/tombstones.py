"""The tombstone in place of a deleted event. It names the keys that have asked for the deletion.

An unknown event gets a tombstone too, because the deletion may arrive before the event. Every key
that has asked is named, so that strangers cannot crowd out the author. The tombstone is valid only
if it names the author's key, or if the operator has removed the event.
"""

from typing import Any, Generic

from farthing.store.spaces import E, Space
from farthing.store.table import Absent, Condition, Engine, Equals, Item, Key, Put, Table

_DELETER = "d#"  # prefix of the sort key of a deleter for which the tombstone has no room
_MOST_NAMED = 100


def tombstone_of(pubkey: str, *, by_operator: bool = False) -> dict[str, Any]:
    """The tombstone of an event by this author."""
    return {"by": [pubkey], "removed": True} if by_operator else {"by": [pubkey]}


class Tombstones(Generic[E]):
    """The tombstones of one space."""

    def __init__(self, engine: Engine, space: Space[E]) -> None:
        self._engine = engine
        self._space = space

    def writes(self, key: Key, current: Item | None, pubkey: str) -> list[Put]:
        """The writes that delete the event at a key, as this author asks. Empty if nothing has to
        be done: another author's event is stored there, or the tombstone names the key already."""
        tombstone, condition = self._tombstone(current, pubkey)
        if tombstone is None:
            return []
        writes = [Put(Table.EVENTS, *key, tombstone, condition)]
        if "more" in tombstone:
            oldest = self._beside(key, current["by"][0] if current else "")
            writes.append(Put(Table.EVENTS, *oldest, {}))
        return writes

    def replaced_by(self, key: Key, event: E, tombstone: Item) -> Condition | None:
        """The condition under which an event replaces a tombstone. None if the tombstone is valid:
        an event can be deleted only by its author, and some kinds by nobody but the operator."""
        if "removed" in tombstone:
            return None
        named = event.pubkey in tombstone["by"]
        if not named and "more" in tombstone:
            named = self._engine.get(Table.EVENTS, *self._beside(key, event.pubkey)) is not None
        deleted = named and event.kind not in self._space.undeletable_kinds
        return None if deleted else Equals("by", tombstone["by"])

    def _tombstone(self, current: Item | None, pubkey: str) -> tuple[Item | None, Condition]:
        """The tombstone to write, or None if nothing has to be done."""
        if current is None:
            return tombstone_of(pubkey), Absent()
        if "j" not in current:
            return _with_deleter(current, pubkey)
        mine = current["p"] == pubkey and current["k"] not in self._space.undeletable_kinds
        return (tombstone_of(pubkey) if mine else None), Equals("p", pubkey)

    def _beside(self, key: Key, pubkey: str) -> Key:
        """The key of a deleter for which the tombstone has no room."""
        return key[0], f"{self._space.prefix}{_DELETER}{pubkey}"


def _with_deleter(tombstone: Item, pubkey: str) -> tuple[Item | None, Condition]:
    """The tombstone with one more key, or None if it names the key already. A full tombstone moves
    its oldest name to an item of its own."""
    by = tombstone["by"]
    # Every deleter changes the list, so the condition of an event that is stored at the same time
    # fails, and it is read again.
    unchanged = Equals("by", by)
    if pubkey in by:
        return None, unchanged
    if len(by) < _MOST_NAMED:
        return {**tombstone, "by": [*by, pubkey]}, unchanged
    return {**tombstone, "by": [*by[1:], pubkey], "more": True}, unchanged
