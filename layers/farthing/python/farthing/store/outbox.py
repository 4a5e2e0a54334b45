"""Broadcasts: the relays of each event, due times, budgets and results. Every delivery is stored in
the ledger before it is sent.

One worker at a time takes a delivery: taking it moves its due time behind the expiry of any packet
that the worker may send. One transaction writes a delivery's amount and reserves it within the
budgets of the event, the group and the day.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from hashlib import sha256
from typing import Any, NamedTuple

from farthing.store.table import (
    EXPIRES,
    Absent,
    Add,
    ConditionFailed,
    Delete,
    Engine,
    Equals,
    Item,
    LessThan,
    Put,
    Query,
    Row,
    Table,
    TransactionCancelled,
    TransactWrite,
    read_all,
)

_LIST = "broadcasts"
_DUE = "outbox"
_DAYS = "broadcast-days"
_RELAYS = "broadcast-relays"
_SUMMARY = "broadcast"
_MARK = ("broadcast-mark", "mark")
_DAY = 24 * 3600
_DAYS_KEPT = 90


class DeliveryState(StrEnum):
    DUE = "due"
    STORED = "stored"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event for one relay."""

    event_id: str
    relay: str  # its WebSocket URL
    group: str  # the reason why the relay is a target
    due: int
    pubkey: str = ""  # the relay's own key, if it is known
    destination: str = ""  # the relay's ILP address; empty for a plain EVENT
    condition: str = ""  # the condition of a quote, if the event is not ours
    state: DeliveryState = DeliveryState.DUE
    attempts: int = 0
    price: int = 0
    repriced: bool = False
    amount: int = 0  # the reserved amount, and in the end the paid one
    packet: str = ""  # the packet for which the amount is reserved, by its name in the ledger
    day: int = 0  # the day whose budget has the amount
    why: str = ""
    checks: bool = False  # whether the event is to be read back when due
    version: int = 0

    @property
    def is_open(self) -> bool:
        """Whether the delivery still has work to do when it is due."""
        return self.state is DeliveryState.DUE or self.checks

    @property
    def place(self) -> tuple[str, str]:
        return _of_event(self.event_id), f"to#{self.relay}"

    @property
    def due_place(self) -> tuple[str, str]:
        mark = sha256(f"{self.event_id}{self.relay}".encode()).hexdigest()[:32]
        return _DUE, f"{self.due:012d}#{mark}"


class Budgets(NamedTuple):
    """The limits of spending on an event, on one group of its relays, and on all events of a
    day."""

    event: int
    group: int
    day: int


class RelayRecord(NamedTuple):
    """A relay's record with the events that it received."""

    relay: str
    stored: int = 0
    failed: int = 0
    paid: int = 0
    kept: int = 0  # events found among those read back
    lost: int = 0
    last_lost: int = 0


class Broadcast(NamedTuple):
    event_id: str
    time: int
    spent: int  # reserved amounts among it
    deliveries: list[Delivery]


class OverBudget(Exception):
    """The amount exceeds the rest of a budget. `tomorrow` says that the next day's budget has room
    for it."""

    def __init__(self, whose: str, tomorrow: bool) -> None:
        super().__init__(f"over the budget of the {whose}")
        self.tomorrow = tomorrow


class Lost(Exception):
    """Another worker has the delivery."""


def _of_event(event_id: str) -> str:
    return f"broadcast#{event_id}"


class Outbox:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def add(self, event_id: str, deliveries: Iterable[Delivery], now: int) -> int:
        """Store deliveries, each once, even if the event is broadcast again. Returns the number of
        new ones."""
        place = _of_event(event_id), _SUMMARY
        with suppress(TransactionCancelled):  # stored before
            self._engine.transact(
                [
                    Put(Table.LEDGER, *place, {"time": now}, Absent()),
                    Put(Table.LEDGER, _LIST, f"{now:012d}#{event_id}", {}),
                ]
            )
        return sum(self._add(delivery) for delivery in deliveries)

    def _add(self, delivery: Delivery) -> bool:
        try:
            self._engine.transact(
                [
                    Put(Table.LEDGER, *delivery.place, _item(delivery), Absent()),
                    _due_row(delivery),
                ]
            )
        except TransactionCancelled:
            return False
        return True

    def retry_failed(self, deliveries: Iterable[Delivery]) -> int:
        """Let those of the deliveries that have failed begin anew. Returns their number."""
        return sum(self._retry(delivery) for delivery in deliveries)

    def _retry(self, delivery: Delivery) -> bool:
        found = self.delivery(delivery.event_id, delivery.relay)
        if found is None or found.state is not DeliveryState.FAILED:
            return False
        try:
            self._move(found, replace(delivery, version=found.version))
        except Lost:  # another call has just done this
            return False
        return True

    def due(self, now: int, most: int) -> list[Delivery]:
        """The deliveries that are due, oldest first."""
        rows = self._due_rows(now, most)
        found = (self.delivery(row.item["event"], row.item["relay"]) for row in rows)
        return [each for each in found if each is not None and each.due <= now]

    def due_events(self, now: int, most: int) -> list[str]:
        """The events of the deliveries that are due, at most so many deliveries."""
        return list(dict.fromkeys(row.item["event"] for row in self._due_rows(now, most)))

    def _due_rows(self, now: int, most: int) -> Sequence[Row]:
        query = Query(Table.LEDGER, _DUE, high=f"{now:012d}~", limit=most)
        return self._engine.query(query).rows

    def delivery(self, event_id: str, relay: str) -> Delivery | None:
        item = self._engine.get(Table.LEDGER, _of_event(event_id), f"to#{relay}")
        return None if item is None else _delivery(item)

    def take(self, delivery: Delivery, until: int) -> Delivery:
        """Take a delivery for this worker until a time. Raises Lost if another worker has it."""
        return self._move(delivery, replace(delivery, due=until))

    def reserve(
        self, delivery: Delivery, amount: int, day: int, budgets: Budgets, until: int
    ) -> Delivery:
        """Reserve a new amount for the delivery in place of the old one, and take the delivery
        until a time. Raises OverBudget if a budget is exceeded; then nothing is written."""
        summary = _of_event(delivery.event_id), _SUMMARY
        more = amount - delivery.amount
        same_day = day == delivery.day
        today = more if same_day else amount
        if more > min(budgets.event, budgets.group):
            raise OverBudget("event", tomorrow=False)
        if today > budgets.day:
            raise OverBudget("day", tomorrow=amount <= budgets.day)
        writes: list[TransactWrite] = []
        if more:
            group = _of_event(delivery.event_id), f"group#{delivery.group}"
            writes.append(_spend(summary, "spent", more, budgets.event))
            writes.append(_spend(group, "spent", more, budgets.group))
        if today:
            writes.append(_spend((_DAYS, f"{day:08d}"), "spent", today, budgets.day, _forget(day)))
        if not same_day and delivery.amount:
            writes.append(_give_back(delivery))
        try:
            return self._move(
                delivery, replace(delivery, amount=amount, day=day, due=until), writes
            )
        except TransactionCancelled as cancelled:
            failed = cancelled.failed[len(cancelled.failed) - len(writes) :]
            which = [write.pk for write, broke in zip(writes, failed, strict=True) if broke]
            only_day = which == [_DAYS]
            raise OverBudget("day" if only_day else "event", only_day) from None

    def postpone(self, delivery: Delivery, due: int, why: str) -> None:
        """Try again later; the amount stays reserved, as the same packet will be sent again."""
        self._move(delivery, replace(delivery, due=due, why=why[:200]))

    def finish(
        self,
        delivery: Delivery,
        state: DeliveryState,
        why: str,
        paid: int = 0,
        check_at: int | None = None,
    ) -> None:
        """End a delivery. A reserved amount that was not paid returns to the budgets."""
        over = replace(
            delivery, state=state, why=why[:200], amount=paid, checks=check_at is not None,
            due=check_at or delivery.due,
        )  # fmt: skip
        writes: list[TransactWrite] = []
        if delivery.amount and not paid:
            writes = self._released(delivery)
        counts = {"stored" if state is DeliveryState.STORED else "failed": 1, "paid": paid}
        writes.append(Add(Table.LEDGER, _RELAYS, delivery.relay, counts))
        self._move(delivery, over, writes, is_over=check_at is None)

    def _released(self, delivery: Delivery) -> list[TransactWrite]:
        event = _of_event(delivery.event_id)
        back = {"spent": -delivery.amount}
        return [
            Add(Table.LEDGER, event, _SUMMARY, back),
            Add(Table.LEDGER, event, f"group#{delivery.group}", back),
            _give_back(delivery),
        ]

    def checked(self, delivery: Delivery, kept: bool | None, now: int) -> None:
        """Store the result of reading the event back; None if there is no result."""
        writes: list[TransactWrite] = []
        if kept is not None:
            assign = {} if kept else {"last_lost": now}
            counts = {"kept" if kept else "lost": 1}
            writes.append(Add(Table.LEDGER, _RELAYS, delivery.relay, counts, assign))
        self._move(delivery, replace(delivery, checks=False), writes, is_over=True)

    def _move(
        self,
        before: Delivery,
        after: Delivery,
        more: Iterable[TransactWrite] = (),
        *,
        is_over: bool = False,
    ) -> Delivery:
        after = replace(after, version=before.version + 1)
        moved: list[TransactWrite] = [
            Put(Table.LEDGER, *after.place, _item(after), Equals("version", before.version))
        ]
        if is_over:
            moved.append(Delete(Table.LEDGER, *before.due_place))
        elif not before.is_open:
            moved.append(_due_row(after))
        elif after.due != before.due:
            moved += [Delete(Table.LEDGER, *before.due_place), _due_row(after)]
        try:
            self._engine.transact([*moved, *more])
        except TransactionCancelled as cancelled:
            if cancelled.failed[0]:
                raise Lost from None
            raise
        return after

    # Reports

    def broadcasts(self, most: int) -> Iterator[Broadcast]:
        """The broadcasts, newest first."""
        query = Query(Table.LEDGER, _LIST, backward=True, limit=most)
        for row in self._engine.query(query).rows:
            found = self.broadcast(row.sk.partition("#")[2])
            if found is not None:
                yield found

    def broadcast(self, event_id: str) -> Broadcast | None:
        rows = {
            row.sk: row.item
            for row in read_all(self._engine, Query(Table.LEDGER, _of_event(event_id)))
        }
        summary = rows.get(_SUMMARY)
        if summary is None:
            return None
        deliveries = [_delivery(item) for sk, item in rows.items() if sk.startswith("to#")]
        return Broadcast(event_id, summary["time"], summary.get("spent", 0), deliveries)

    def spent_on(self, day: int) -> int:
        item = self._engine.get(Table.LEDGER, _DAYS, f"{day:08d}")
        return 0 if item is None else int(item["spent"])

    def relay(self, relay: str) -> RelayRecord:
        item = self._engine.get(Table.LEDGER, _RELAYS, relay)
        return RelayRecord(relay, **(item or {}))

    def relays(self) -> Iterator[RelayRecord]:
        for row in read_all(self._engine, Query(Table.LEDGER, _RELAYS)):
            yield RelayRecord(row.sk, **row.item)

    def pardon(self, relay: str) -> bool:
        """Reset the count of a relay's lost events."""
        known = self.relay(relay)
        if not known.lost:
            return False
        self._engine.write(
            Add(Table.LEDGER, _RELAYS, relay, {"lost": -known.lost}, {"last_lost": 0})
        )
        return True

    # The checkpoint in the owner's own events

    def looked_at(self) -> int | None:
        item = self._engine.get(Table.LEDGER, *_MARK)
        return None if item is None else int(item["number"])

    def look_at(self, before: int | None, number: int) -> bool:
        """Move the checkpoint. False if another process has moved it."""
        condition = Absent() if before is None else Equals("number", before)
        try:
            self._engine.write(Put(Table.LEDGER, *_MARK, {"number": number}, condition))
        except ConditionFailed:
            return False
        return True


def _item(delivery: Delivery) -> Item:
    return {**asdict(delivery), "state": delivery.state.value}


def _delivery(item: Item) -> Delivery:
    fields: dict[str, Any] = {**item, "state": DeliveryState(item["state"])}
    return Delivery(**fields)


def _due_row(delivery: Delivery) -> Put:
    item = {"event": delivery.event_id, "relay": delivery.relay}
    return Put(Table.LEDGER, *delivery.due_place, item)


def _forget(day: int) -> dict[str, int]:
    return {EXPIRES: (day + _DAYS_KEPT) * _DAY}


def _give_back(delivery: Delivery) -> Add:
    return Add(Table.LEDGER, _DAYS, f"{delivery.day:08d}", {"spent": -delivery.amount})


def _spend(
    place: tuple[str, str], name: str, amount: int, most: int, assign: dict[str, int] | None = None
) -> Add:
    # The condition also holds for a missing item, so the caller must refuse an amount above the
    # whole budget.
    condition = LessThan(name, most - amount + 1)
    return Add(Table.LEDGER, *place, {name: amount}, assign or {}, condition)
