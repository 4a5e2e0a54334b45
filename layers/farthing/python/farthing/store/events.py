"""Stored events: writing, replacing, deleting, and reading by id.

The event's item is the commit point. Postings are written before it and taken away after it, so
that a crash leaves at worst a posting that points nowhere, and never an event that is not found.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from enum import Enum, auto
from functools import partial
from typing import Any, Generic

from farthing.nostr.events import Event
from farthing.nostr.kinds import Keeping
from farthing.store.payment import BORROWED, Payment, raise_if_refused
from farthing.store.postings import Lists, short_value
from farthing.store.spaces import SPACES, E, Space, Storable
from farthing.store.table import (
    EXPIRES,
    Absent,
    Condition,
    ConditionFailed,
    Contended,
    Delete,
    Engine,
    Equals,
    Item,
    Key,
    Put,
    Table,
    TransactionCancelled,
    TransactWrite,
)

_EVENT = "e"  # sort key of an event, or of the tombstone in its place
_ADDRESS = "a"  # sort key of an address
_ATTEMPTS = 100  # each lost race means that somebody else has got on
_DELETER = "d#"  # begins the sort key of a deleter that a full tombstone does not name
_MOST_NAMED = 100
_DAY = 24 * 3600


class Outcome(Enum):
    STORED = auto()
    DUPLICATE = auto()
    SUPERSEDED = auto()  # a newer version of its address is stored
    DELETED = auto()  # its author has deleted it


class EventRecord(Generic[E]):
    """An event as it is kept: its JSON goes out as it is, and is parsed only where need be. Reads
    make hundreds of them, so each looks its fields up in the item."""

    __slots__ = ("_event", "_item", "_parse", "id")

    def __init__(self, event_id: str, item: Item, parse: Callable[[str], E]) -> None:
        self.id = event_id
        self._item = item
        self._parse = parse
        self._event: E | None = None

    @property
    def pubkey(self) -> str:
        return str(self._item["p"])

    @property
    def kind(self) -> int:
        kind: int = self._item["k"]
        return kind

    @property
    def created_at(self) -> int:
        created_at: int = self._item["c"]
        return created_at

    @property
    def json(self) -> str:
        json: str = self._item["j"]
        return json

    @property
    def payment(self) -> str | None:
        """The reference of what paid for it."""
        return self._item.get("r")

    @property
    def written(self) -> int:
        """The second in which it was written."""
        return int(self._item.get("w", 0))

    @property
    def event(self) -> E:
        if self._event is None:
            self._event = self._parse(self.json)
        return self._event


StoredEvent = EventRecord[Event]


def event_item(event: Storable, written: int, payment: Payment | None = None) -> Item:
    item = {
        "j": event.to_json(),
        "p": event.pubkey,
        "k": event.kind,
        "c": event.created_at,
        "w": written,
    }
    if payment is not None:
        item["r"] = payment.reference
    expires = expiry_of(event, payment)
    if expires is not None:
        item[EXPIRES] = expires
    return item


def expiry_of(event: Storable, payment: Payment | None) -> int | None:
    """When the event goes: by its author's word, or when a loan ends."""
    loan = None if payment is None else payment.expires
    return min((each for each in (event.expiration, loan) if each is not None), default=None)


def event_key(space: Space[Any], event_id: str) -> Key:
    """Where an event stands. The sort key names the space as well: jobs that read a whole export
    choose items by their sort key, and then do not meet those of another format."""
    return f"{space.prefix}{event_id}", f"{space.prefix}{_EVENT}"


def stored_event(space: Space[E], pk: str, item: Item) -> EventRecord[E] | None:
    """The event in an item of the events table; None for a tombstone."""
    if "j" not in item:
        return None
    return EventRecord(pk.removeprefix(space.prefix), item, space.parse)


def space_of(pk: str, sk: str) -> Space[Any] | None:
    """The space of an event's key in the events table; None for an item that holds no event."""
    for space in SPACES:
        if sk == f"{space.prefix}{_EVENT}" and pk.startswith(space.prefix):
            return space
    return None


class EventStore(Generic[E]):
    """The events of one space."""

    def __init__(
        self, engine: Engine, space: Space[E], *, clock: Callable[[], float] = time.time
    ) -> None:
        self.space = space
        self.lists = Lists(space, engine.shards)
        self._engine = engine
        self._clock = clock

    @property
    def _now(self) -> int:
        return int(self._clock())

    def get(self, event_id: str) -> EventRecord[E] | None:
        pk, sk = event_key(self.space, event_id)
        item = self._engine.get(Table.EVENTS, pk, sk)
        return None if item is None else stored_event(self.space, pk, item)

    def get_many(self, ids: Iterable[str]) -> dict[str, EventRecord[E]]:
        keys = {event_key(self.space, event_id): event_id for event_id in ids}
        items = self._engine.get_many(Table.EVENTS, keys)
        parse = self.space.parse
        return {
            keys[key]: EventRecord(keys[key], item, parse)
            for key, item in items.items()
            if "j" in item
        }

    def at_address(self, address: str) -> EventRecord[E] | None:
        """The version that stands at an address, `kind:pubkey:name`."""
        return self._current_version(self._address(self._address_key(address)))

    def was_here(self, event_id: str) -> bool:
        """Whether the event is stored, or was until its author deleted it."""
        return self._engine.get(Table.EVENTS, *event_key(self.space, event_id)) is not None

    def save(
        self,
        event: E,
        beside: Callable[[], Any] = lambda: None,
        payment: Payment | None = None,
    ) -> Outcome:
        """Store the event durably; saving it again changes nothing.

        `beside` is run next to the first round trip; if it raises, the event is not stored. A
        payment is made in the transaction that commits the event; PaymentRefused if it cannot be.
        A loan never takes anything from an event that stands by right, and gives way to it.
        """
        if event.keeping is Keeping.EPHEMERAL:
            raise ValueError("an ephemeral event is never stored")
        if event.address is not None:
            return self._save_version(event, event.address, beside, payment)
        if payment is not None and payment.is_loan and self._stands(event, payment):
            return Outcome.DUPLICATE  # before its postings would get an end that it does not have
        self._engine.together(beside, lambda: self._write_postings(event, payment))
        outcome = self._save_once(event, payment)
        if outcome is Outcome.DUPLICATE and payment is not None and payment.is_loan:
            self._write_postings(event, None)  # stored by right in this very moment
        if outcome is Outcome.DELETED:
            self._drop_postings(event)  # for good: nobody can store it any more
        if event.kind == self.space.deletion_kind and outcome is not Outcome.DELETED:
            # Also when it was stored before: that attempt may have ended halfway.
            self._delete_targets(event)
        return outcome

    def _save_once(self, event: E, payment: Payment | None) -> Outcome:
        condition: Condition = Absent()
        key, item = event_key(self.space, event.id), event_item(event, self._now, payment)
        for _ in range(_ATTEMPTS):
            try:
                self._commit(Put(Table.EVENTS, *key, item, condition), payment)
                return Outcome.STORED
            except ConditionFailed as failure:
                if failure.current is None:  # gone between the two looks
                    condition = Absent()
                elif _gives_way(failure.current, payment):
                    condition = Equals("r", BORROWED)
                elif "j" in failure.current:
                    return Outcome.DUPLICATE
                elif (over := self._over_tombstone(event, failure.current)) is None:
                    return Outcome.DELETED
                else:
                    condition = over
        raise Contended("the event is being written by others")

    def _commit(self, put: Put, payment: Payment | None) -> None:
        self._write([put, *(payment.writes if payment else ())])

    def _write(self, writes: Sequence[TransactWrite]) -> None:
        """Make the first write, together with the others where there are any; ConditionFailed if
        its condition does."""
        first = writes[0]
        if len(writes) == 1 and isinstance(first, Put):
            self._engine.write(first)
            return
        try:
            self._engine.transact(writes)
        except TransactionCancelled as cancelled:
            raise_if_refused(cancelled, 1)
            raise ConditionFailed(cancelled.current[0]) from None

    def _save_version(
        self, event: E, address: str, beside: Callable[[], Any], payment: Payment | None
    ) -> Outcome:
        key = self._address_key(address)
        condition: Condition = Absent()
        _, current = self._engine.together(beside, lambda: self._address(key))
        for attempt in range(_ATTEMPTS):
            refusal = _refusal(event, current)
            if refusal is Outcome.DUPLICATE:
                refusal, condition = self._same_version(event, payment, condition)
            if attempt and refusal in (Outcome.DELETED, Outcome.SUPERSEDED):
                self._drop_postings(event)
            if refusal is not None:
                return refusal
            if payment is not None and payment.is_loan:
                replaced = self._current_version(current)
                payment = _as_lasting_as(replaced, payment)
                self._write_postings(event, payment)
            else:
                _, replaced = self._engine.together(
                    partial(self._write_postings, event, payment),
                    partial(self._current_version, current),
                )
            item = event_item(event, self._now, payment)
            writes = self._replacement(event, key, current, condition, item)
            try:
                self._engine.transact([*writes, *(payment.writes if payment else ())])
            except TransactionCancelled as cancelled:
                raise_if_refused(cancelled, len(writes))
                standing = cancelled.current[1]
                if standing is not None and "by" in standing:
                    over = self._over_tombstone(event, standing)
                    if over is None:
                        self._drop_postings(event)
                        return Outcome.DELETED
                    condition = over
                elif standing is not None and _gives_way(standing, payment):
                    condition = Equals("r", BORROWED)
                current = self._address(key)
                continue
            if replaced is not None and replaced.id != event.id:
                self._drop_postings(replaced.event)
            return Outcome.STORED
        raise Contended("the address is being written by others")

    def _stands(self, event: E, payment: Payment) -> bool:
        item = self._engine.get(Table.EVENTS, *event_key(self.space, event.id))
        return item is not None and "j" in item and not _gives_way(item, payment)

    def _same_version(
        self, event: E, payment: Payment | None, condition: Condition
    ) -> tuple[Outcome | None, Condition]:
        """What becomes of a version whose address names it already, and on which condition."""
        item = self._engine.get(Table.EVENTS, *event_key(self.space, event.id))
        if item is None:  # its loan has ended
            return None, condition
        if "j" not in item:  # deleted by id: the address does not know of it
            return Outcome.DELETED, condition
        if _gives_way(item, payment):
            return None, Equals("r", BORROWED)
        return Outcome.DUPLICATE, condition

    def _address_key(self, address: str) -> Key:
        kind, pubkey, name = address.split(":", 2)
        return f"{self.space.prefix}a#{kind}:{pubkey}:{short_value(name)}", _ADDRESS

    def _address(self, key: Key) -> Item | None:
        return self._engine.get(Table.EVENTS, *key)

    def _current_version(self, address: Item | None) -> EventRecord[E] | None:
        return self.get(address["id"]) if address and "id" in address else None

    def _write_postings(self, event: E, payment: Payment | None) -> None:
        postings = self.lists.postings(event, self._now, expiry_of(event, payment))
        self._engine.write_batch(postings, deferred=True)

    def _drop_postings(self, event: E) -> None:
        keys = self.lists.keys(event)
        self._engine.write_batch([Delete(Table.POSTINGS, pk, sk) for pk, sk in keys])

    def _delete_targets(self, deletion: E) -> None:
        """Delete what the event names, as far as it is its author's own."""
        ids, addresses = self.space.targets(deletion)
        keys = {each: event_key(self.space, each) for each in ids}
        items = self._engine.get_many(Table.EVENTS, keys.values())
        self._engine.together(
            *(
                partial(self._delete_event, keys[each], deletion.pubkey, items.get(keys[each]))
                for each in ids
            ),
            *(partial(self._delete_address, address, deletion.created_at) for address in addresses),
        )

    def remove(self, event_id: str) -> bool:
        """Take an event away, whoever wrote it; whether it was here. The tombstone in its place
        keeps the event from coming back, and its receipt from missing it."""
        key = event_key(self.space, event_id)
        current = self._engine.get(Table.EVENTS, *key)
        if current is None or "j" not in current:
            return False
        tombstone = {"by": [current["p"]], "removed": True}
        try:
            self._engine.write(Put(Table.EVENTS, *key, tombstone, Equals("p", current["p"])))
        except ConditionFailed:  # deleted or replaced meanwhile
            return False
        removed = stored_event(self.space, key[0], current)
        assert removed is not None
        self._drop_postings(removed.event)
        return True

    def _delete_event(self, key: Key, pubkey: str, current: Item | None) -> None:
        for _ in range(_ATTEMPTS):
            tombstone, condition = self._tombstone(current, pubkey)
            if tombstone is None:
                return
            writes: list[TransactWrite] = [Put(Table.EVENTS, *key, tombstone, condition)]
            if "more" in tombstone:
                oldest = self._beside(key, current["by"][0] if current else "")
                writes.append(Put(Table.EVENTS, *oldest, {}))
            try:
                self._write(writes)
            except ConditionFailed as failure:
                current = failure.current
                continue
            deleted = stored_event(self.space, key[0], current) if current else None
            if deleted is not None:
                self._drop_postings(deleted.event)
            return
        raise Contended("the event is being written by others")

    def _delete_address(self, address: str, until: int) -> None:
        key = self._address_key(address)
        for _ in range(_ATTEMPTS):
            current = self._address(key)
            standing = current or {}
            covered = standing.get("c", until + 1) <= until
            deleted = self._current_version(current) if covered else None
            if standing.get("deleted", -1) >= until and deleted is None:
                return
            try:
                self._engine.transact(self._address_deletion(key, current, until, deleted))
            except TransactionCancelled:
                continue
            if deleted is not None:
                self._drop_postings(deleted.event)
            return
        raise Contended("the address is being written by others")

    def _over_tombstone(self, event: E, tombstone: Item) -> Condition | None:
        """The condition under which an event takes a tombstone's place. None where the tombstone
        counts: only its author deletes an event, and nobody a deletion."""
        named = event.pubkey in tombstone["by"]
        if not named and "more" in tombstone:
            key = self._beside(event_key(self.space, event.id), event.pubkey)
            named = self._engine.get(Table.EVENTS, *key) is not None
        deleted = named and event.kind != self.space.deletion_kind
        return None if deleted else Equals("by", tombstone["by"])

    def _beside(self, key: Key, pubkey: str) -> Key:
        """Where a deleter stands that a tombstone has no room for."""
        return key[0], f"{self.space.prefix}{_DELETER}{pubkey}"

    def _replacement(
        self, event: E, key: Key, current: Item | None, condition: Condition, item: Item
    ) -> list[TransactWrite]:
        address: dict[str, Any] = {"id": event.id, "c": event.created_at}
        if current is not None and "deleted" in current:
            address["deleted"] = current["deleted"]
        writes: list[TransactWrite] = [
            _address_put(key, current, address),
            Put(Table.EVENTS, *event_key(self.space, event.id), item, condition),
        ]
        if current is not None and current.get("id", event.id) != event.id:
            writes.append(Delete(Table.EVENTS, *event_key(self.space, current["id"])))
        return writes

    def _address_deletion(
        self, key: Key, current: Item | None, until: int, deleted: EventRecord[E] | None
    ) -> list[TransactWrite]:
        standing = current or {}
        # Kept as what older versions are measured against, even where the event itself is gone.
        address = {name: standing[name] for name in ("id", "c") if name in standing}
        address["deleted"] = max(until, standing.get("deleted", -1))
        writes: list[TransactWrite] = [_address_put(key, current, address)]
        if deleted is not None:
            tombstone = {"by": [deleted.pubkey]}
            writes.append(Put(Table.EVENTS, *event_key(self.space, deleted.id), tombstone))
        return writes

    def _tombstone(self, current: Item | None, pubkey: str) -> tuple[Item | None, Condition]:
        """What takes the place of a deleted event, or None where there is nothing to do.

        An event that we have not seen yet gets one as well: the deletion may be here first. It then
        counts only for the one key that turns out to be the author's, and names every key that has
        asked: many strangers must not keep the author from it.
        """
        if current is None:
            return {"by": [pubkey]}, Absent()
        if "j" not in current:
            return _with_deleter(current, pubkey)
        mine = current["p"] == pubkey and current["k"] != self.space.deletion_kind
        return ({"by": [pubkey]} if mine else None), Equals("p", pubkey)


def _as_lasting_as(replaced: EventRecord[Any] | None, loan: Payment) -> Payment:
    """A version on loan that replaces one that was to stay, stays as well."""
    if replaced is None or replaced.payment == BORROWED:
        return loan
    return replace(loan, expires=None)


def _gives_way(item: Item, payment: Payment | None) -> bool:
    """Whether a stored event is borrowed, and whoever stores it now keeps it longer: by right, or
    on a loan that ends a day later or more."""
    if item.get("r") != BORROWED or "j" not in item:
        return False
    if payment is None or not payment.is_loan:
        return True
    ends = item.get(EXPIRES)
    return ends is not None and payment.expires is not None and ends + _DAY <= payment.expires


def _with_deleter(tombstone: Item, pubkey: str) -> tuple[Item | None, Condition]:
    """The tombstone that names one more key; None if it names the key. One that is full puts the
    oldest of its names beside itself."""
    by = tombstone["by"]
    # Every deleter changes the list, so an event that is stored at the same time meets a failed
    # condition and looks again.
    unchanged = Equals("by", by)
    if pubkey in by:
        return None, unchanged
    if len(by) < _MOST_NAMED:
        return {**tombstone, "by": [*by, pubkey]}, unchanged
    return {"by": [*by[1:], pubkey], "more": True}, unchanged


def _refusal(event: Storable, current: Item | None) -> Outcome | None:
    """Why the version may not take its address, given what stands there."""
    if current is None:
        return None
    if event.created_at <= current.get("deleted", -1):
        return Outcome.DELETED
    if current.get("id") == event.id:
        return Outcome.DUPLICATE
    if "id" in current and (current["c"], event.id) > (event.created_at, current["id"]):
        return Outcome.SUPERSEDED
    return None


def _address_put(key: Key, current: Item | None, address: Item) -> Put:
    """The address under the condition that nobody has changed it since it was read."""
    version = 0 if current is None else current["v"]
    condition: Condition = Absent() if current is None else Equals("v", version)
    return Put(Table.EVENTS, *key, {**address, "v": version + 1}, condition)
