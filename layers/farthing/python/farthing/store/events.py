"""Stored events: writing, replacing, deleting, and reading by id.

The event's item is the commit point. Postings are written before it and deleted after it. So a
crash may leave a posting without an event, but never an event without postings.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from enum import Enum, auto
from functools import partial
from typing import Any, Generic, TypeVar

from farthing.nostr.events import Event
from farthing.nostr.kinds import Keeping
from farthing.store.payment import BORROWED, Payment, raise_if_refused
from farthing.store.postings import Lists, short_value
from farthing.store.recall import Reading, Recall
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
    is_expired,
)
from farthing.store.tombstones import Tombstones, tombstone_of

_EVENT = "e"  # sort key of an event, or of the tombstone in its place
_ADDRESS = "a"  # sort key of an address
_ATTEMPTS = 100  # each lost race means that another writer has made progress
_DAY = 24 * 3600

T = TypeVar("T")


class Outcome(Enum):
    STORED = auto()
    DUPLICATE = auto()
    SUPERSEDED = auto()  # a newer version of its address is stored
    DELETED = auto()  # its author has deleted it


class EventRecord(Generic[E]):
    """A stored event. Its JSON is sent unchanged, and is parsed only if needed. A read makes
    hundreds of records, so each field is read from the item on demand."""

    __slots__ = ("_event", "_item", "_octets", "_parse", "gone", "id", "number")

    def __init__(self, event_id: str, item: Item, parse: Callable[[str], E]) -> None:
        self.id = event_id
        self._item = item
        self._parse = parse
        self._event: E | None = None
        self._octets: bytes | None = None
        self.gone = False  # see `recall`
        self.number: int | None = None  # its change number, once somebody has asked for it

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
    def size(self) -> int:
        """About the length of its JSON."""
        return len(self.json)

    @property
    def octets(self) -> bytes:
        """The JSON as octets, for sending."""
        if self._octets is None:
            self._octets = self.json.encode()
        return self._octets

    @property
    def expires(self) -> int | None:
        """The second from which the event no longer exists."""
        expires: int | None = self._item.get(EXPIRES)
        return expires

    @property
    def payment(self) -> str | None:
        """The reference of the event's payment."""
        return self._item.get("r")

    @property
    def written(self) -> int:
        """The second in which the event was written."""
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
    """When the event expires: at its author's expiration tag, or at the end of a loan."""
    if payment is None:
        return event.expiration
    loan = payment.expires
    return min((each for each in (event.expiration, loan) if each is not None), default=None)


def event_key(space: Space[Any], event_id: str) -> Key:
    """The key of an event. The sort key also names the space: jobs that read a whole export select
    items by sort key, and so skip other formats."""
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
        self,
        engine: Engine,
        space: Space[E],
        *,
        clock: Callable[[], float] = time.time,
        recall: Recall | None = None,
    ) -> None:
        self.space = space
        self.recall = recall
        self.lists = Lists(space, engine.shards)
        self._engine = engine
        self._clock = clock
        self._tombstones = Tombstones(engine, space)

    @property
    def now(self) -> int:
        return int(self._clock())

    def get(self, event_id: str) -> EventRecord[E] | None:
        pk, sk = event_key(self.space, event_id)
        item = self._engine.get(Table.EVENTS, pk, sk)
        return None if item is None else stored_event(self.space, pk, item)

    def get_many(
        self, ids: Iterable[str], reading: Reading | None = None
    ) -> dict[str, EventRecord[E]]:
        """The stored events among these ids. `reading` is the answer that they belong to, if the
        answer is to be cached."""
        keys = {event_key(self.space, event_id): event_id for event_id in ids}
        if self.recall is None:
            return {keys[key]: record for key, record in self._read(keys).items()}
        found = self.recall.records(keys)
        unknown = [key for key in keys if key not in found]
        if reading is not None:
            reading.keys.update(unknown)
            found |= self._read_and_keep(self.recall, reading, unknown)
        elif unknown:
            with self.recall.reading() as own:
                own.keys.update(unknown)
                found |= self._read_and_keep(self.recall, own, unknown)
        return {event_id: found[key] for key, event_id in keys.items() if key in found}

    def _read_and_keep(
        self, recall: Recall, reading: Reading, keys: Sequence[Key]
    ) -> dict[Key, EventRecord[E]]:
        read = self._read(keys) if keys else {}
        recall.keep_records(reading, read)
        return read

    def _read(self, keys: Iterable[Key]) -> dict[Key, EventRecord[E]]:
        items = self._engine.get_many(Table.EVENTS, keys)
        parse, start = self.space.parse, len(self.space.prefix)
        return {
            key: EventRecord(key[0][start:], item, parse)
            for key, item in items.items()
            if "j" in item
        }

    def at_addresses(self, addresses: Iterable[str]) -> list[EventRecord[E]]:
        """The current versions at some addresses, `kind:pubkey:name`. An address without an event
        gives none."""
        keys = [self._address_key(address) for address in addresses]
        items = self._engine.get_many(Table.EVENTS, keys).values()
        return list(self.get_many(item["id"] for item in items if "id" in item).values())

    def was_here(self, event_id: str) -> bool:
        """Whether the event is stored, or was until its author deleted it."""
        return self._engine.get(Table.EVENTS, *event_key(self.space, event_id)) is not None

    def save(
        self,
        event: E,
        beside: Callable[[], Any] | None = None,
        payment: Payment | None = None,
    ) -> Outcome:
        """Store the event durably; saving it again changes nothing.

        `beside`, if given, runs in parallel with the first request. If it raises, the event is not
        stored. A payment is made in the transaction that commits the event. Raises PaymentRefused
        if the payment fails. An event on loan never replaces or shortens an event that is stored to
        stay, and is replaced by it.
        """
        if event.keeping is Keeping.EPHEMERAL:
            raise ValueError("an ephemeral event is never stored")
        if event.address is not None:
            return self._save_version(event, event.address, beside, payment)
        if payment is not None and payment.is_loan and self._stands(event, payment):
            # Before the postings are written: they would get an expiry that the event lacks.
            return Outcome.DUPLICATE
        self._next_to(beside, partial(self._write_postings, event, payment))
        outcome = self._save_once(event, payment)
        if outcome is Outcome.DUPLICATE and payment is not None and payment.is_loan:
            self._write_postings(event, None)  # another writer has just stored the event to stay
        if outcome is Outcome.DELETED:
            self._drop_postings(event)  # final: nobody can store the event any more
        if event.kind == self.space.deletion_kind and outcome is not Outcome.DELETED:
            # Also if the event was stored before: the earlier attempt may have stopped halfway.
            self._delete_targets(event)
        return outcome

    def _next_to(self, beside: Callable[[], Any] | None, call: Callable[[], T]) -> T:
        """The result of `call`, with `beside` run in parallel."""
        if beside is None:
            return call()
        result: T = self._engine.together(beside, call)[1]
        return result

    def _save_once(self, event: E, payment: Payment | None) -> Outcome:
        condition: Condition = Absent()
        key, item = event_key(self.space, event.id), event_item(event, self.now, payment)
        for _ in range(_ATTEMPTS):
            try:
                self._commit(Put(Table.EVENTS, *key, item, condition), payment)
                return Outcome.STORED
            except ConditionFailed as failure:
                over = self._over(event, failure.current, payment)
                if isinstance(over, Outcome):
                    return over
                condition = over
        raise Contended("other processes are writing the event")

    def _over(
        self, event: E, standing: Item | None, payment: Payment | None
    ) -> Condition | Outcome:
        """The condition under which the event may take the place of the item at its key, or the
        outcome if it may not."""
        if standing is None:  # deleted between the two reads
            return Absent()
        if is_expired(standing, self.now):
            return Equals(EXPIRES, standing[EXPIRES])
        if _gives_way(standing, payment):
            return Equals("r", BORROWED)
        if "j" in standing:
            return Outcome.DUPLICATE
        key = event_key(self.space, event.id)
        return self._tombstones.replaced_by(key, event, standing) or Outcome.DELETED

    def _commit(self, put: Put, payment: Payment | None) -> None:
        self._write([put, *(payment.writes if payment else ())])

    def _write(self, writes: Sequence[TransactWrite]) -> None:
        """Make the first write, in one transaction with the others, if any. Raises ConditionFailed
        if the first write's condition fails."""
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
        self, event: E, address: str, beside: Callable[[], Any] | None, payment: Payment | None
    ) -> Outcome:
        key = self._address_key(address)
        condition: Condition = Absent()
        current = self._next_to(beside, partial(self._address, key))
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
            item = event_item(event, self.now, payment)
            writes = self._replacement(event, key, current, condition, item)
            try:
                self._engine.transact([*writes, *(payment.writes if payment else ())])
            except TransactionCancelled as cancelled:
                raise_if_refused(cancelled, len(writes))
                standing = cancelled.current[1]
                over = None if standing is None else self._over(event, standing, payment)
                if over is Outcome.DELETED:
                    self._drop_postings(event)
                    return Outcome.DELETED
                if over is not None and not isinstance(over, Outcome):
                    condition = over
                current = self._address(key)
                continue
            if replaced is not None and replaced.id != event.id:
                self._drop_postings(replaced.event)
            return Outcome.STORED
        raise Contended("other processes are writing the address")

    def _stands(self, event: E, payment: Payment) -> bool:
        item = self._engine.get(Table.EVENTS, *event_key(self.space, event.id))
        return item is not None and "j" in item and not _gives_way(item, payment)

    def _same_version(
        self, event: E, payment: Payment | None, condition: Condition
    ) -> tuple[Outcome | None, Condition]:
        """The item and condition for a version that its address names already."""
        item = self._engine.get(Table.EVENTS, *event_key(self.space, event.id))
        if item is None:  # its loan has ended
            return None, condition
        if "j" not in item:  # deleted by id, which does not change the address
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
        postings = self.lists.postings(event, self.now, expiry_of(event, payment))
        self._engine.write_batch(postings, deferred=True)

    def _drop_postings(self, event: E) -> None:
        keys = self.lists.keys(event)
        self._engine.write_batch([Delete(Table.POSTINGS, pk, sk) for pk, sk in keys])

    def _delete_targets(self, deletion: E) -> None:
        """Delete the events and addresses that the event names, if they belong to its author."""
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
        """Remove an event of any author. Returns whether it was stored. The tombstone in its place
        prevents storing the event again, and keeps its receipt valid."""
        key = event_key(self.space, event_id)
        current = self._engine.get(Table.EVENTS, *key)
        if current is None or "j" not in current:
            return False
        tombstone = tombstone_of(current["p"], by_operator=True)
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
            writes = self._tombstones.writes(key, current, pubkey)
            if not writes:
                return
            try:
                self._write(writes)
            except ConditionFailed as failure:
                current = failure.current
                continue
            deleted = stored_event(self.space, key[0], current) if current else None
            if deleted is not None:
                self._drop_postings(deleted.event)
            return
        raise Contended("other processes are writing the event")

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
        raise Contended("other processes are writing the address")

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
        # Kept for comparison with older versions, even if the event itself is deleted.
        address = {name: standing[name] for name in ("id", "c") if name in standing}
        address["deleted"] = max(until, standing.get("deleted", -1))
        writes: list[TransactWrite] = [_address_put(key, current, address)]
        if deleted is not None:
            tombstone = tombstone_of(deleted.pubkey)
            writes.append(Put(Table.EVENTS, *event_key(self.space, deleted.id), tombstone))
        return writes


def _as_lasting_as(replaced: EventRecord[Any] | None, loan: Payment) -> Payment:
    """The payment of a version on loan. If it replaces a version that was stored to stay, it stays
    too."""
    if replaced is None or replaced.payment == BORROWED:
        return loan
    return replace(loan, expires=None)


def _gives_way(item: Item, payment: Payment | None) -> bool:
    """Whether a stored event is borrowed and the new one would stay longer: without an end, or on a
    loan that ends at least a day later."""
    if item.get("r") != BORROWED or "j" not in item:
        return False
    if payment is None or not payment.is_loan:
        return True
    ends = item.get(EXPIRES)
    return ends is not None and payment.expires is not None and ends + _DAY <= payment.expires


def _refusal(event: Storable, current: Item | None) -> Outcome | None:
    """The reason why the version may not replace the current version of its address, or None."""
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
    """The write of the address, on the condition that it has not changed since it was read."""
    version = 0 if current is None else current["v"]
    condition: Condition = Absent() if current is None else Equals("v", version)
    return Put(Table.EVENTS, *key, {**address, "v": version + 1}, condition)
