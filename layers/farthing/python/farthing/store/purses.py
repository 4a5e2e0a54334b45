"""Purses: money that a key has paid in advance, and every movement of it.

A purse's numbers are in one item: `left` can be drawn, and filled + granted = drawn + left holds at
all times. The condition of each draw keeps `left` at zero or above. Each movement leaves a record
in the partition of its purse, which is its receipt. Both are written in the transaction of the
purchase, so this module only makes the writes of fills and draws.

Each purse has a partition of its own, so that writers of different purses never wait for each
other. The list of purses is divided over several partitions, and grows only with a new purse.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from types import MappingProxyType
from typing import Any, NamedTuple

from farthing.store.payment import Payment
from farthing.store.settlements import KeyUsedDifferently
from farthing.store.table import (
    EXPIRES,
    Absent,
    Add,
    AtLeast,
    ConditionFailed,
    Contended,
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

_PURSE = "purse"
_MOVEMENT = "movement#"
_CREDIT = "credit#"
_PURPOSE = "purse "
_LISTS = "0123456789abcdef"  # by a key's first digit
_LAPSES = ("purses", "lapses")
_ATTEMPTS = 10  # each lost race means that another process has made progress
_AT_ONCE = 100

DAY_SECONDS = 24 * 3600


class MovementKind(StrEnum):
    """The number of a purse that a movement changes, beside `left`."""

    FILLED = "filled"  # paid in: by packet, wallet or processor
    GRANTED = "granted"  # given by the operator: no revenue
    DRAWN = "drawn"  # paid for something here
    LAPSED = "lapsed"  # idle for longer than the operator's limit; counted as drawn


class Way(StrEnum):
    """The source of money in a purse, or the purpose of a draw."""

    PACKET = "packet"
    STREAM = "stream"
    PROCESSOR = "processor"
    OPERATOR = "operator"
    EVENT = "event"
    SUBSCRIPTION = "subscription"  # drawn as credit, or filled with the credit that was left
    IDLE = "idle"


_COUNTER = {kind: kind.value for kind in MovementKind} | {MovementKind.LAPSED: "drawn"}
_INTO = frozenset({MovementKind.FILLED, MovementKind.GRANTED})
# A table, because reading the value of an enum's member is slow.
_NAMES = {member: member.value for member in (*MovementKind, *Way)}


class Movement(NamedTuple):
    """One movement of a purse: its receipt. The amount is positive in either direction."""

    kind: MovementKind
    way: Way
    amount: int
    time_ms: int
    mark: str  # distinguishes movements of one millisecond: an event id, a condition, a random id
    detail: Mapping[str, Any] = MappingProxyType(
        {}
    )  # details that depend on the way, such as event kind and size

    @property
    def sk(self) -> str:
        return f"{_MOVEMENT}{self.time_ms:015d}#{_NAMES[self.kind]}#{self.mark}"

    def item(self) -> dict[str, Any]:
        """The item, as flat as a receipt's, with a purpose and the second, for readers of
        receipts."""
        detail = dict(self.detail)
        item = {
            "purpose": _PURPOSE + _NAMES[self.kind],
            "way": _NAMES[self.way],
            "amount": self.amount,
            "time": self.time_ms // 1000,
            "time_ms": self.time_ms,
            "mark": self.mark,
            "detail": detail,
        }
        for name in ("kind", "size"):
            if name in detail:
                item[name] = detail[name]
        return item


@dataclass(frozen=True, slots=True)
class Purse:
    """The present state of a purse. A purse without a record is empty."""

    key: str
    left: int = 0
    filled: int = 0
    granted: int = 0
    drawn: int = 0
    moves: int = 0  # number of changes
    moved_ms: int = 0  # time of the last movement
    is_frozen: bool = False  # by the operator: the purse accepts no money and pays for nothing
    exists: bool = False

    @property
    def drawable(self) -> int:
        return 0 if self.is_frozen else self.left


def reference_of(key: str) -> str:
    """The reference in an event that was paid from a purse."""
    return f"purse#{key}"


def drawn_once(event_id: str, until: int) -> Put:
    """A write for the draw of an event that is not stored. It allows the draw only once, until a
    time (in seconds) after which the event is refused anyway."""
    return Put(Table.LEDGER, f"drawn#{event_id}", _PURSE, {EXPIRES: until}, Absent())


def _place(key: str) -> tuple[str, str]:
    return f"purse#{key}", _PURSE


def _listed(key: str) -> tuple[str, str]:
    return f"purses#{key[0]}", key


class Purses:
    """Purses by public key in hexadecimal digits. The caller checks that the key is a point of the
    curve."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def get(self, key: str) -> Purse:
        return _purse(key, self._engine.get(Table.LEDGER, *_place(key)))

    def get_many(self, keys: Iterable[str]) -> dict[str, Purse]:
        """A purse for each of the keys, in their order."""
        wanted = list(dict.fromkeys(keys))
        found = self._engine.get_many(Table.LEDGER, [_place(key) for key in wanted])
        return {key: _purse(key, found.get(_place(key))) for key in wanted}

    def all(self) -> Iterator[Purse]:
        for digit in _LISTS:
            keys = [
                row.sk for row in read_all(self._engine, Query(Table.LEDGER, f"purses#{digit}"))
            ]
            for start in range(0, len(keys), _AT_ONCE):
                yield from self.get_many(keys[start : start + _AT_ONCE]).values()

    def movements(self, key: str) -> Iterator[Movement]:
        """All movements, oldest first."""
        for row in read_all(self._engine, _movements(key)):
            yield _movement(row.item)

    def last_movements(self, key: str, most: int) -> list[Movement]:
        """The newest movements, newest first."""
        query = _movements(key)._replace(backward=True, limit=most)
        return [_movement(row.item) for row in self._engine.query(query).rows]

    # Writes for the caller's transaction. The first write changes the purse: if it fails, the purse
    # is frozen or has too little left.

    def fill(self, purse: Purse, movement: Movement) -> list[TransactWrite]:
        """The writes that add money, unless the purse is frozen. `purse` is its recently read
        state."""
        if movement.kind not in _INTO or movement.amount <= 0:
            raise ValueError("expected a positive amount that comes in")
        moved = {"left": movement.amount, _COUNTER[movement.kind]: movement.amount}
        writes = _written(purse.key, movement, moved, LessThan("frozen", 1))
        if not purse.exists:
            writes.append(Put(Table.LEDGER, *_listed(purse.key), {}))
        return writes

    def draw(self, key: str, movement: Movement) -> Payment:
        """A draw, as the payment for the purchase in the same transaction. The payment is refused
        if the purse has too little."""
        if movement.kind is not MovementKind.DRAWN or movement.amount <= 0:
            raise ValueError("expected a positive amount that goes out")
        moved = {"left": -movement.amount, "drawn": movement.amount}
        enough = AtLeast("left", movement.amount)
        return Payment(_written(key, movement, moved, enough), reference_of(key))

    # Complete operations

    def grant(self, key: str, amount: int, time_ms: int, mark: str) -> bool:
        """Grant money of the operator; False if the purse is frozen."""
        movement = Movement(MovementKind.GRANTED, Way.OPERATOR, amount, time_ms, mark)
        try:
            self._engine.transact(self.fill(self.get(key), movement))
        except TransactionCancelled:
            return False
        return True

    def credit(self, key: str, credit_key: str, amount: int, time_ms: int) -> bool | None:
        """Count a processor's report under this idempotency key once. False if it was counted
        before, None if the purse is frozen. Raises KeyUsedDifferently if the key was used with
        another amount."""
        digest = sha256(credit_key.encode("utf-8", "surrogateescape")).hexdigest()
        record = {"amount": amount, "time_ms": time_ms}
        counted = Put(Table.LEDGER, _place(key)[0], f"{_CREDIT}{digest}", record, Absent())
        movement = Movement(MovementKind.FILLED, Way.PROCESSOR, amount, time_ms, digest)
        try:
            self._engine.transact([counted, *self.fill(self.get(key), movement)])
        except TransactionCancelled as cancelled:
            if not cancelled.failed[0]:
                return None
            if (cancelled.current[0] or {}).get("amount") != amount:
                raise KeyUsedDifferently("this idempotency key was used before") from None
            return False
        return True

    def freeze(self, key: str, *, frozen: bool = True) -> Purse:
        """Freeze or unfreeze a purse. The money of a frozen purse is stored under another
        attribute, which no draw reads."""
        for _ in range(_ATTEMPTS):
            item = self._engine.get(Table.LEDGER, *_place(key))
            if bool((item or {}).get("frozen")) is frozen:
                return _purse(key, item)
            source, target = ("left", "kept") if frozen else ("kept", "left")
            amount = (item or {}).get(source, 0)
            moved = {source: -amount, target: amount, "moves": 1}
            unmoved = Absent() if item is None else Equals("moves", item["moves"])
            try:
                self._engine.transact(
                    [
                        Add(Table.LEDGER, *_place(key), moved, {"frozen": int(frozen)}, unmoved),
                        Put(Table.LEDGER, *_listed(key), {}),
                    ]
                )
            except TransactionCancelled:
                continue
            return self.get(key)
        raise Contended("other processes are changing the purse")

    def claim_lapses(self, now: int) -> bool:
        """Claim today's search for idle purses. False if another process has claimed it."""
        today = now // DAY_SECONDS
        claim = Put(Table.LEDGER, *_LAPSES, {"day": today}, LessThan("day", today))
        try:
            self._engine.write(claim)
        except ConditionFailed:
            return False
        return True

    def lapse(self, purse: Purse, time_ms: int) -> bool:
        """Book the rest as lapsed; False if the purse has had a movement meanwhile."""
        movement = Movement(MovementKind.LAPSED, Way.IDLE, purse.left, time_ms, _PURSE)
        moved = {"left": -purse.left, "drawn": purse.left}
        unmoved = Equals("moves", purse.moves)
        try:
            self._engine.transact(_written(purse.key, movement, moved, unmoved))
        except TransactionCancelled:
            return False
        return True


def _written(
    key: str, movement: Movement, moved: dict[str, int], condition: AtLeast | LessThan | Equals
) -> list[TransactWrite]:
    place = _place(key)
    return [
        Add(Table.LEDGER, *place, {**moved, "moves": 1}, {"moved_ms": movement.time_ms}, condition),
        # No condition is needed: the purchase or its receipt can be written only once.
        Put(Table.LEDGER, place[0], movement.sk, movement.item()),
    ]


def _movements(key: str) -> Query:
    return Query(Table.LEDGER, _place(key)[0], low=_MOVEMENT, high=f"{_MOVEMENT}~")


def _purse(key: str, item: Item | None) -> Purse:
    if item is None:
        return Purse(key)
    return Purse(
        key=key,
        left=item.get("left", 0) + item.get("kept", 0),
        filled=item.get("filled", 0),
        granted=item.get("granted", 0),
        drawn=item.get("drawn", 0),
        moves=item.get("moves", 0),
        moved_ms=item.get("moved_ms", 0),
        is_frozen=bool(item.get("frozen", 0)),
        exists=True,
    )


def _movement(item: Item) -> Movement:
    return Movement(
        MovementKind(item["purpose"].removeprefix(_PURPOSE)),
        Way(item["way"]),
        item["amount"],
        item["time_ms"],
        item["mark"],
        item["detail"],
    )
