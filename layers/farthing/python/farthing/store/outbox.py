"""Broadcasts: which event goes to which relay, when it is due, what it may cost, and what came of
it. Everything stands in the ledger before anything is sent.

A delivery is taken by one worker at a time: to take it moves its due time behind the expiry of any
packet that the worker may send. What a delivery may cost is reserved, within the budgets of the
event, of the group and of the day, in the transaction that writes the amount down.
"""

from collections.abc import Iterable, Iterator
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


class State(StrEnum):
    DUE = "due"
    STORED = "stored"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event for one relay."""

    event_id: str
    relay: str  # its WebSocket URL
    group: str  # why the relay is a target
    due: int
    pubkey: str = ""  # the relay's own key, where it is known
    destination: str = ""  # its ILP address; empty where a plain EVENT is sent
    condition: str = ""  # of a quote, where the event is not ours
    state: State = State.DUE
    attempts: int = 0
    price: int = 0
    repriced: bool = False
    amount: int = 0  # reserved, and in the end paid
    day: int = 0  # whose budget the amount is of
    why: str = ""
    checks: bool = False  # is to be read back when due
    version: int = 0

    @property
    def place(self) -> tuple[str, str]:
        return _of_event(self.event_id), f"to#{self.relay}"

    @property
    def due_place(self) -> tuple[str, str]:
        mark = sha256(f"{self.event_id}{self.relay}".encode()).hexdigest()[:32]
        return _DUE, f"{self.due:012d}#{mark}"


class Budgets(NamedTuple):
    """What may be spent on an event, on one group of its relays, and on all events of a day."""

    event: int
    group: int
    day: int


class RelayRecord(NamedTuple):
    """What a relay has done with what it was given."""

    relay: str
    stored: int = 0
    failed: int = 0
    paid: int = 0
    kept: int = 0  # of those read back
    lost: int = 0
    last_lost: int = 0


class Broadcast(NamedTuple):
    event_id: str
    time: int
    spent: int  # reserved amounts among it
    deliveries: list[Delivery]


class OverBudget(Exception):
    """The amount is more than what is left; `tomorrow` if the next day has room for it."""

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
        """Write deliveries down, each once, however often the event is broadcast. How many are
        new."""
        place = _of_event(event_id), _SUMMARY
        with suppress(TransactionCancelled):  # begun before
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

    def due(self, now: int, most: int) -> list[Delivery]:
        """Deliveries whose time has come, the oldest first."""
        page = self._engine.query(Query(Table.LEDGER, _DUE, high=f"{now:012d}~", limit=most))
        found = (self.delivery(row.item["event"], row.item["relay"]) for row in page.rows)
        return [each for each in found if each is not None and each.due <= now]

    def delivery(self, event_id: str, relay: str) -> Delivery | None:
        item = self._engine.get(Table.LEDGER, _of_event(event_id), f"to#{relay}")
        return None if item is None else _delivery(item)

    def take(self, delivery: Delivery, until: int) -> Delivery:
        """Have a delivery to ourselves until then. Lost if somebody else has it."""
        return self._move(delivery, replace(delivery, due=until))

    def reserve(
        self, delivery: Delivery, amount: int, day: int, budgets: Budgets, until: int
    ) -> Delivery:
        """Write down what the delivery may cost, instead of what it might until now, and have it to
        ourselves until then. OverBudget where there is not so much left: then nothing is
        written."""
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
        self, delivery: Delivery, state: State, why: str, paid: int = 0, check_at: int | None = None
    ) -> None:
        """The end of a delivery. What was reserved and not paid is given back."""
        over = replace(
            delivery, state=state, why=why[:200], amount=paid, checks=check_at is not None,
            due=check_at or delivery.due,
        )  # fmt: skip
        writes: list[TransactWrite] = []
        if delivery.amount and not paid:
            writes = self._released(delivery)
        counts = {"stored" if state is State.STORED else "failed": 1, "paid": paid}
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
        """What reading back has shown; None if it has shown nothing."""
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
        elif after.due != before.due:
            moved += [Delete(Table.LEDGER, *before.due_place), _due_row(after)]
        try:
            self._engine.transact([*moved, *more])
        except TransactionCancelled as cancelled:
            if cancelled.failed[0]:
                raise Lost from None
            raise
        return after

    # What is told of it

    def broadcasts(self, most: int) -> Iterator[Broadcast]:
        """The newest first."""
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
        """Forget what a relay has lost."""
        known = self.relay(relay)
        if not known.lost:
            return False
        self._engine.write(
            Add(Table.LEDGER, _RELAYS, relay, {"lost": -known.lost}, {"last_lost": 0})
        )
        return True

    # How far the owner's own events have been looked at

    def looked_at(self) -> int | None:
        item = self._engine.get(Table.LEDGER, *_MARK)
        return None if item is None else int(item["number"])

    def look_at(self, before: int | None, number: int) -> bool:
        """Move the mark. Whether nobody else has moved it."""
        condition = Absent() if before is None else Equals("number", before)
        try:
            self._engine.write(Put(Table.LEDGER, *_MARK, {"number": number}, condition))
        except ConditionFailed:
            return False
        return True


def _item(delivery: Delivery) -> Item:
    return {**asdict(delivery), "state": delivery.state.value}


def _delivery(item: Item) -> Delivery:
    fields: dict[str, Any] = {**item, "state": State(item["state"])}
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
    # Holds also where nothing is written yet: an amount over the budget must not come this far.
    condition = LessThan(name, most - amount + 1)
    return Add(Table.LEDGER, *place, {name: amount}, assign or {}, condition)
