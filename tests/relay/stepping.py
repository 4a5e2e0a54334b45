"""Engines that show what happens: every item that is left, and every order of operations."""

import random
import threading
from collections.abc import Callable, Sequence
from typing import Any

from farthing.store.table import BatchWrite, Delete, Engine, Item, Table, Write
from tests.store.faulty import FaultyEngine

Flow = Callable[[Engine], None]


class MirroringEngine(FaultyEngine):
    """Keeps a set of the keys in the sessions table, whether or not anything leads to them."""

    def __init__(self, inner: Engine) -> None:
        super().__init__(inner)
        self.sessions: set[tuple[str, str]] = set()

    def write(self, write: Write) -> Item | None:
        result = super().write(write)
        self._follow(write)
        return result

    def write_batch(self, writes: Sequence[BatchWrite], *, deferred: bool = False) -> None:
        super().write_batch(writes, deferred=deferred)
        for write in writes:
            self._follow(write)

    def _follow(self, write: Write) -> None:
        if write.table is Table.SESSIONS:
            change = self.sessions.discard if isinstance(write, Delete) else self.sessions.add
            change((write.pk, write.sk))


class _SteppingEngine:
    """Waits for its turn before each operation of the engine inside."""

    def __init__(self, inner: Engine, dice: random.Random, *, shuffle: bool) -> None:
        self.inner = inner
        self.dice = dice
        self.shuffle = shuffle
        self.go = threading.Semaphore(0)
        self.done = threading.Semaphore(0)
        self.finished = False
        self.max_transaction = inner.max_transaction
        self.shards = inner.shards

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self.inner, name)

        def step(*arguments: Any, **options: Any) -> Any:
            self.go.acquire()
            try:
                return operation(*arguments, **options)
            finally:
                self.done.release()

        return step

    def together(self, *calls: Callable[[], Any]) -> list[Any]:
        """In any order, as calls side by side may happen to run."""
        numbers = list(range(len(calls)))
        if self.shuffle:
            self.dice.shuffle(numbers)
        results = {number: calls[number]() for number in numbers}
        return [results[number] for number in range(len(calls))]


def interleave(engine: Engine, flows: Sequence[Flow], seed: int, *, shuffle: bool) -> None:
    """Run flows over one engine, one operation at a time, in an order that dice decide."""
    dice = random.Random(seed)
    engines = [_SteppingEngine(engine, dice, shuffle=shuffle) for _ in flows]
    errors: list[BaseException] = []

    def run(flow: Flow, stepping: _SteppingEngine) -> None:
        try:
            flow(stepping)
        except BaseException as error:
            errors.append(error)
        finally:
            stepping.finished = True
            stepping.done.release()

    threads = [threading.Thread(target=run, args=pair) for pair in zip(flows, engines, strict=True)]
    for thread in threads:
        thread.start()
    waiting = list(engines)
    while waiting:
        chosen = dice.choice(waiting)
        chosen.go.release()
        chosen.done.acquire()
        waiting = [each for each in waiting if not each.finished]
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
