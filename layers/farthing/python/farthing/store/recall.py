"""A cache of recently read events and answers, kept in memory while they are valid.

The cache needs an engine that reports every commit. The cloud's engine cannot: other containers
write there. Before a commit is acknowledged, `forget` drops the changed entries, and reads that are
running at that moment are not cached. So the cache gives the same as a read.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from farthing.store.table import Key

# Estimated bytes that Python needs for an object beside its text.
_RECORD_BYTES = 900
_ANSWER_BYTES = 500
_REFERENCE_BYTES = 8
# The share of the cache's bytes for answers.
_FOR_ANSWERS = 4

# The space's name, and a text that is equal only for equal requests.
Question = tuple[str, str]


class Remembered(Protocol):
    """An event as the event store reads it."""

    gone: bool  # no longer valid

    @property
    def size(self) -> int: ...

    @property
    def expires(self) -> int | None: ...


class _Answer(NamedTuple):
    records: Sequence[Any]
    lists: Collection[str]
    until: float  # the second from which one of its events no longer exists
    bytes: int


_is_gone = attrgetter("gone")
_FOREVER = float("inf")


@dataclass(eq=False, slots=True)
class Reading:
    """A read in progress, and whether its result may be cached."""

    lists: set[str] = field(default_factory=set)
    keys: set[Key] = field(default_factory=set)
    any_key: bool = False  # as if it had named every key
    spoiled: bool = False

    def spoil(self) -> None:
        """Do not cache the result: it is for one client only, or may change without a write."""
        self.spoiled = True

    def is_touched_by(self, lists: Collection[str], keys: Collection[Key]) -> bool:
        if self.any_key and keys:
            return True
        return not (self.lists.isdisjoint(lists) and self.keys.isdisjoint(keys))


class Recall:
    """`most` is in bytes. `others` is a number that changes when another process has written."""

    def __init__(
        self,
        most: int,
        *,
        clock: Callable[[], float] = time.time,
        others: Callable[[], int] = lambda: 0,
    ) -> None:
        self._most = most
        self._clock = clock
        self._others = others
        self._seen = others()
        self._mutex = threading.Lock()
        # In order: the first key of a dict is behind all that were deleted before it, and is found
        # only after them.
        self._records: OrderedDict[Key, Any] = OrderedDict()
        self._answers: OrderedDict[Question, _Answer] = OrderedDict()
        self._by_list: dict[str, set[Question]] = {}
        self._readings: set[Reading] = set()
        self._record_bytes = 0
        self._answer_bytes = 0

    @property
    def bytes(self) -> int:
        """The estimated size of the cache."""
        return self._record_bytes + self._answer_bytes

    def records(self, keys: Iterable[Key]) -> dict[Key, Any]:
        """The cached events among these keys."""
        self._notice_others()
        kept, now = self._records, self._clock()
        found = {}
        for key in keys:
            record = kept.get(key)
            if record is not None and (record.expires is None or record.expires > now):
                found[key] = record
        return found

    def answer(self, question: Question) -> Sequence[Any] | None:
        """The cached answer to a question; None if it has to be read."""
        self._notice_others()
        found = self._answers.get(question)
        if found is None:
            return None
        if found.until <= self._clock() or any(map(_is_gone, found.records)):
            with self._mutex:
                self._drop_answer(question)
            return None
        return found.records

    def knows(self, question: Question) -> bool:
        """Whether an answer was cached a moment ago. It helps to decide which thread answers."""
        return question in self._answers

    @contextmanager
    def reading(self) -> Iterator[Reading]:
        """The context of a read whose result is to be cached. The reader names each list and each
        key before reading them."""
        reading = Reading()
        self._notice_others()
        with self._mutex:
            self._readings.add(reading)
        try:
            yield reading
        finally:
            with self._mutex:
                self._readings.discard(reading)

    def keep_records(self, reading: Reading, records: dict[Key, Any]) -> None:
        """Cache read records under keys that the reading has named. If another reader has cached
        the same meanwhile, its record is used instead."""
        self._notice_others()
        with self._mutex:
            if reading.spoiled:
                return
            for key, record in records.items():
                standing = self._records.setdefault(key, record)
                if standing is record:
                    self._record_bytes += _bytes_of(record)
                records[key] = standing
            most = self._most - self._most // _FOR_ANSWERS
            while self._record_bytes > most:
                self._drop_record(next(iter(self._records)))

    def keep_answer(self, reading: Reading, question: Question, records: Sequence[Any]) -> None:
        """Cache a whole answer, made of cached records."""
        self._notice_others()
        ends = [record.expires for record in records if record.expires is not None]
        size = _ANSWER_BYTES + len(question[1]) + _REFERENCE_BYTES * len(records)
        size += sum(map(len, reading.lists)) + _ANSWER_BYTES * len(reading.lists) // 4
        answer = _Answer(tuple(records), tuple(reading.lists), min(ends, default=_FOREVER), size)
        with self._mutex:
            if reading.spoiled or any(map(_is_gone, records)):
                return
            self._drop_answer(question)
            self._answers[question] = answer
            self._answer_bytes += size
            for name in answer.lists:
                self._by_list.setdefault(name, set()).add(question)
            while self._answer_bytes > self._most // _FOR_ANSWERS:
                self._drop_answer(next(iter(self._answers)))

    def forget(self, lists: Collection[str], keys: Collection[Key]) -> None:
        """Drop the entries for lists and keys that a commit has changed."""
        with self._mutex:
            for reading in self._readings:
                if reading.is_touched_by(lists, keys):
                    reading.spoiled = True
            for name in lists:
                for question in tuple(self._by_list.get(name, ())):
                    self._drop_answer(question)
            for key in keys:
                if key in self._records:
                    self._drop_record(key)

    def _forget_all(self) -> None:
        for reading in self._readings:
            reading.spoiled = True
        for record in self._records.values():
            record.gone = True
        self._records.clear()
        self._answers.clear()
        self._by_list.clear()
        self._record_bytes = self._answer_bytes = 0

    def _notice_others(self) -> None:
        seen = self._others()
        if seen != self._seen:
            with self._mutex:
                self._seen = seen
                self._forget_all()

    def _drop_record(self, key: Key) -> None:
        record = self._records.pop(key)
        record.gone = True  # answers with this record check this mark
        self._record_bytes -= _bytes_of(record)

    def _drop_answer(self, question: Question) -> None:
        answer = self._answers.pop(question, None)
        if answer is None:
            return
        self._answer_bytes -= answer.bytes
        for name in answer.lists:
            questions = self._by_list[name]
            questions.discard(question)
            if not questions:
                del self._by_list[name]


def _bytes_of(record: Remembered) -> int:
    # As text, and as the octets that go out.
    return _RECORD_BYTES + 2 * record.size
