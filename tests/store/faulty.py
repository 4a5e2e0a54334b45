"""An engine around another one that fails on purpose and on plan, for the tests of all that stands
above: refused calls, lost answers, half-done batches, and the death of the process."""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from farthing.store.table import (
    BatchWrite,
    Engine,
    Item,
    Key,
    Page,
    Query,
    StoreError,
    Table,
    TransactWrite,
    Write,
)

T = TypeVar("T")

WRITES = frozenset({"write", "write_batch", "transact"})


class Crash(BaseException):
    """The process ends here: not an Exception, so that nothing above tidies up after it."""


@dataclass(frozen=True, slots=True)
class Fault:
    """`after`: the call is carried out and its answer lost. `written`: so many writes of a batch
    are carried out before it fails."""

    error: Callable[[], BaseException] = StoreError
    after: bool = False
    written: int = 0


# Asked before each operation, with its number from 0 on and its name.
Plan = Callable[[int, str], Fault | None]


def at(number: int, fault: Fault) -> Plan:
    """The operation of this number fails."""
    return lambda count, _: fault if count == number else None


def nth(number: int, names: Iterable[str], fault: Fault) -> Plan:
    """The operation of this number among those so named fails."""
    wanted = frozenset(names)
    seen = iter(range(1 << 62))
    return lambda _, name: fault if name in wanted and next(seen) == number else None


def seeded(seed: int, rate: float, faults: Sequence[Fault]) -> Plan:
    """Operations fail at this rate, the same ones for the same seed."""
    dice = random.Random(seed)
    return lambda _, __: dice.choice(faults) if dice.random() < rate else None


def never(_: int, __: str) -> Fault | None:
    return None


class FaultyEngine:
    """See `table.Engine`. `plan` can be changed on the way; `operations` are those asked for."""

    def __init__(self, inner: Engine, plan: Plan = never) -> None:
        self.inner = inner
        self.plan = plan
        self.operations: list[str] = []

    @property
    def max_transaction(self) -> int:
        return self.inner.max_transaction

    @property
    def shards(self) -> int:
        return self.inner.shards

    def _next(self, name: str) -> Fault | None:
        self.operations.append(name)
        return self.plan(len(self.operations) - 1, name)

    def _do(self, name: str, call: Callable[[], T]) -> T:
        fault = self._next(name)
        if fault is None:
            return call()
        if fault.after:
            call()
        raise fault.error()

    def get(self, table: Table, pk: str, sk: str) -> Item | None:
        return self._do("get", lambda: self.inner.get(table, pk, sk))

    def get_many(self, table: Table, keys: Iterable[Key]) -> dict[Key, Item]:
        return self._do("get_many", lambda: self.inner.get_many(table, keys))

    def query(self, query: Query) -> Page:
        return self._do("query", lambda: self.inner.query(query))

    def query_many(self, queries: Sequence[Query]) -> list[Page]:
        return self._do("query_many", lambda: self.inner.query_many(queries))

    def write(self, write: Write) -> Item | None:
        return self._do("write", lambda: self.inner.write(write))

    def write_batch(self, writes: Sequence[BatchWrite], *, deferred: bool = False) -> None:
        fault = self._next("write_batch")
        if fault is None:
            self.inner.write_batch(writes, deferred=deferred)
            return
        done = writes if fault.after else writes[: fault.written]
        if done:
            self.inner.write_batch(done, deferred=deferred)
        raise fault.error()

    def transact(self, writes: Sequence[TransactWrite]) -> None:
        self._do("transact", lambda: self.inner.transact(writes))

    def together(self, *calls: Callable[[], T]) -> list[T]:
        """One after another, so that the operations have the same numbers every time."""
        return [call() for call in calls]
