"""Stored events: writing, replacing, deleting, and reading by id.

The event's item is the commit point. Postings are written before it and taken away after it, so
that a crash leaves at worst a posting that points nowhere, and never an event that is not found.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property, partial
from typing import Any

from farthing.nostr.events import Event, is_hex64, known_event
from farthing.nostr.kinds import Keeping, Kind, keeping
from farthing.store.payment import Payment, raise_if_refused
from farthing.store.postings import posting_keys, postings_of, short_value
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
    Put,
    Table,
    TransactionCancelled,
    TransactWrite,
)

_EVENT = "e"  # sort key of an event, or of the tombstone in its place
_ADDRESS = "a"  # sort key of an address
_ATTEMPTS = 100  # each lost race means that somebody else has got on
_MOST_DELETERS = 100


class Outcome(Enum):
    STORED = auto()
    DUPLICATE = auto()
    SUPERSEDED = auto()  # a newer version of its address is stored
    DELETED = auto()  # its author has deleted it


@dataclass(frozen=True)
class StoredEvent:
    """An event as it is kept: its JSON goes out as it is, and is parsed only where need be."""

    id: str
    pubkey: str
    kind: int
    created_at: int
    json: str
    payment: str | None = None  # reference of what paid for it
    written: int = 0  # second in which it was written

    @cached_property
    def event(self) -> Event:
        return known_event(self.json)


def event_item(event: Event, written: int, payment: Payment | None = None) -> Item:
    item = {
        "j": event.to_json(),
        "p": event.pubkey,
        "k": event.kind,
        "c": event.created_at,
        "w": written,
    }
    if payment is not None:
        item["r"] = payment.reference
    if event.expiration is not None:
        item[EXPIRES] = event.expiration
    return item


def stored_event(event_id: str, item: Item) -> StoredEvent | None:
    """The event in an item of the events table; None for a tombstone."""
    if "j" not in item:
        return None
    return StoredEvent(
        event_id, item["p"], item["k"], item["c"], item["j"], item.get("r"), item.get("w", 0)
    )


def _address_key(address: str) -> str:
    kind, pubkey, d = address.split(":", 2)
    return f"a#{kind}:{pubkey}:{short_value(d)}"


class EventStore:
    def __init__(self, engine: Engine, *, clock: Callable[[], float] = time.time) -> None:
        self._engine = engine
        self._clock = clock

    @property
    def _now(self) -> int:
        return int(self._clock())

    def get(self, event_id: str) -> StoredEvent | None:
        item = self._engine.get(Table.EVENTS, event_id, _EVENT)
        return None if item is None else stored_event(event_id, item)

    def get_many(self, ids: Iterable[str]) -> dict[str, StoredEvent]:
        items = self._engine.get_many(Table.EVENTS, [(event_id, _EVENT) for event_id in ids])
        found = {pk: stored_event(pk, item) for (pk, _), item in items.items()}
        return {event_id: event for event_id, event in found.items() if event is not None}

    def was_here(self, event_id: str) -> bool:
        """Whether the event is stored, or was until its author deleted it."""
        return self._engine.get(Table.EVENTS, event_id, _EVENT) is not None

    def save(
        self,
        event: Event,
        beside: Callable[[], Any] = lambda: None,
        payment: Payment | None = None,
    ) -> Outcome:
        """Store the event durably; saving it again changes nothing.

        `beside` is run next to the first round trip; if it raises, the event is not stored. A
        payment is made in the transaction that commits the event; PaymentRefused if it cannot be.
        """
        if event.keeping is Keeping.EPHEMERAL:
            raise ValueError("an ephemeral event is never stored")
        if event.address is not None:
            return self._save_version(event, event.address, beside, payment)
        self._engine.together(beside, lambda: self._write_postings(event))
        outcome = self._save_once(event, payment)
        if outcome is Outcome.DELETED:
            self._drop_postings(event)  # for good: nobody can store it any more
        if event.kind == Kind.DELETION and outcome is not Outcome.DELETED:
            # Also when it was stored before: that attempt may have ended halfway.
            self._delete_targets(event)
        return outcome

    def _save_once(self, event: Event, payment: Payment | None) -> Outcome:
        condition: Condition = Absent()
        item = event_item(event, self._now, payment)
        for _ in range(_ATTEMPTS):
            try:
                self._commit(Put(Table.EVENTS, event.id, _EVENT, item, condition), payment)
                return Outcome.STORED
            except ConditionFailed as failure:
                if failure.current is None:  # gone between the two looks
                    condition = Absent()
                elif "j" in failure.current:
                    return Outcome.DUPLICATE
                elif _is_deleted(event, failure.current):
                    return Outcome.DELETED
                else:  # the tombstone has no say over this event
                    condition = Equals("by", failure.current["by"])
        raise Contended("the event is being written by others")

    def _commit(self, put: Put, payment: Payment | None) -> None:
        if payment is None or not payment.writes:
            self._engine.write(put)
            return
        try:
            self._engine.transact([put, *payment.writes])
        except TransactionCancelled as cancelled:
            raise_if_refused(cancelled, 1)
            raise ConditionFailed(cancelled.current[0]) from None

    def _save_version(
        self, event: Event, address: str, beside: Callable[[], Any], payment: Payment | None
    ) -> Outcome:
        key = _address_key(address)
        condition: Condition = Absent()
        _, current = self._engine.together(beside, lambda: self._address(key))
        for attempt in range(_ATTEMPTS):
            refusal = _refusal(event, current)
            if refusal is Outcome.DUPLICATE and self.get(event.id) is None:
                refusal = Outcome.DELETED  # by id: the address does not know of it
            if attempt and refusal in (Outcome.DELETED, Outcome.SUPERSEDED):
                self._drop_postings(event)
            if refusal is not None:
                return refusal
            _, replaced = self._engine.together(
                lambda: self._write_postings(event),
                partial(self._current_version, current),
            )
            item = event_item(event, self._now, payment)
            writes = _replacement(event, key, current, condition, item)
            try:
                self._engine.transact([*writes, *(payment.writes if payment else ())])
            except TransactionCancelled as cancelled:
                raise_if_refused(cancelled, len(writes))
                standing = cancelled.current[1]
                if standing is not None and _is_deleted(event, standing):
                    self._drop_postings(event)
                    return Outcome.DELETED
                if standing is not None and "by" in standing:
                    condition = Equals("by", standing["by"])
                current = self._address(key)
                continue
            if replaced is not None:
                self._drop_postings(replaced.event)
            return Outcome.STORED
        raise Contended("the address is being written by others")

    def _address(self, key: str) -> Item | None:
        return self._engine.get(Table.EVENTS, key, _ADDRESS)

    def _current_version(self, address: Item | None) -> StoredEvent | None:
        return self.get(address["id"]) if address and "id" in address else None

    def _write_postings(self, event: Event) -> None:
        self._engine.write_batch(postings_of(event, self._now), deferred=True)

    def _drop_postings(self, event: Event) -> None:
        self._engine.write_batch([Delete(Table.POSTINGS, pk, sk) for pk, sk in posting_keys(event)])

    def _delete_targets(self, deletion: Event) -> None:
        """What a kind 5 names by `e` and `a`, as far as it is its author's own (NIP-09)."""
        ids = [value for value in dict.fromkeys(deletion.values("e")) if is_hex64(value)]
        items = self._engine.get_many(Table.EVENTS, [(event_id, _EVENT) for event_id in ids])
        addresses = dict.fromkeys(deletion.values("a"))
        self._engine.together(
            *(
                partial(self._delete_event, each, deletion.pubkey, items.get((each, _EVENT)))
                for each in ids
            ),
            *(
                partial(self._delete_address, address, deletion.created_at)
                for address in addresses
                if _owns_address(deletion.pubkey, address)
            ),
        )

    def _delete_event(self, event_id: str, pubkey: str, current: Item | None) -> None:
        for _ in range(_ATTEMPTS):
            tombstone, condition = _tombstone(current, pubkey)
            if tombstone is None:
                return
            try:
                self._engine.write(Put(Table.EVENTS, event_id, _EVENT, tombstone, condition))
            except ConditionFailed as failure:
                current = failure.current
                continue
            deleted = stored_event(event_id, current) if current else None
            if deleted is not None:
                self._drop_postings(deleted.event)
            return
        raise Contended("the event is being written by others")

    def _delete_address(self, address: str, until: int) -> None:
        key = _address_key(address)
        for _ in range(_ATTEMPTS):
            current = self._address(key)
            standing = current or {}
            covered = standing.get("c", until + 1) <= until
            deleted = self._current_version(current) if covered else None
            if standing.get("deleted", -1) >= until and deleted is None:
                return
            try:
                self._engine.transact(_address_deletion(key, current, until, deleted))
            except TransactionCancelled:
                continue
            if deleted is not None:
                self._drop_postings(deleted.event)
            return
        raise Contended("the address is being written by others")


def _is_deleted(event: Event, tombstone: Item) -> bool:
    """Whether a tombstone counts: only its author deletes an event, and nobody a deletion."""
    return event.pubkey in tombstone.get("by", ()) and event.kind != Kind.DELETION


def _refusal(event: Event, current: Item | None) -> Outcome | None:
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


def _replacement(
    event: Event,
    key: str,
    current: Item | None,
    condition: Condition,
    item: Item,
) -> list[TransactWrite]:
    address: dict[str, Any] = {"id": event.id, "c": event.created_at}
    if current is not None and "deleted" in current:
        address["deleted"] = current["deleted"]
    writes: list[TransactWrite] = [
        _address_put(key, current, address),
        Put(Table.EVENTS, event.id, _EVENT, item, condition),
    ]
    if current is not None and "id" in current:
        writes.append(Delete(Table.EVENTS, current["id"], _EVENT))
    return writes


def _address_deletion(
    key: str, current: Item | None, until: int, deleted: StoredEvent | None
) -> list[TransactWrite]:
    standing = current or {}
    # Kept as what older versions are measured against, even where the event itself is gone.
    address = {name: standing[name] for name in ("id", "c") if name in standing}
    address["deleted"] = max(until, standing.get("deleted", -1))
    writes: list[TransactWrite] = [_address_put(key, current, address)]
    if deleted is not None:
        tombstone = {"by": [deleted.pubkey]}
        writes.append(Put(Table.EVENTS, deleted.id, _EVENT, tombstone))
    return writes


def _address_put(key: str, current: Item | None, address: Item) -> Put:
    """The address under the condition that nobody has changed it since it was read."""
    version = 0 if current is None else current["v"]
    condition: Condition = Absent() if current is None else Equals("v", version)
    return Put(Table.EVENTS, key, _ADDRESS, {**address, "v": version + 1}, condition)


def _tombstone(current: Item | None, pubkey: str) -> tuple[Item | None, Condition]:
    """What takes the place of a deleted event, or None where there is nothing to do.

    An event that we have not seen yet gets one as well: the deletion may be here first. It then
    counts only for the one key that turns out to be the author's.
    """
    if current is None:
        return {"by": [pubkey]}, Absent()
    if "j" not in current:
        by = current["by"]
        done = pubkey in by or len(by) >= _MOST_DELETERS
        return (None if done else {"by": [*by, pubkey]}), Equals("by", by)
    mine = current["p"] == pubkey and current["k"] != Kind.DELETION
    return ({"by": [pubkey]} if mine else None), Equals("p", pubkey)


def _owns_address(pubkey: str, address: str) -> bool:
    parts = address.split(":", 2)
    if len(parts) != 3 or not parts[0].isdecimal() or not parts[0].isascii():
        return False
    kind = keeping(int(parts[0])) if len(parts[0]) <= 5 else Keeping.REGULAR
    if kind is Keeping.REPLACEABLE:
        return parts[1] == pubkey and parts[2] == ""
    return kind is Keeping.ADDRESSABLE and parts[1] == pubkey
