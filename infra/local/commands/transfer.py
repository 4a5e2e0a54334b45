"""Import and export of events as lines of JSON: streamed, verified, resumable.

Both work on the data folder, also while the server runs on it.
"""

import gc
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from itertools import takewhile
from pathlib import Path
from typing import IO, Any, NamedTuple

import orjson
from tqdm import tqdm

from farthing.aether.errors import AetherError
from farthing.aether.events import parse_event as parse_aether_event
from farthing.context import Agent
from farthing.nostr.events import InvalidEvent, parse_event, verify
from farthing.nostr.kinds import Keeping
from farthing.nostr.messages import Refused
from farthing.relay.aether.publish import read_event as read_aether_event
from farthing.relay.policies import check_policies
from farthing.settings import Settings
from farthing.store.events import EventRecord, EventStore, Outcome
from farthing.store.limits import MAX_ITEM_BYTES
from farthing.store.payment import OWNER
from farthing.store.postings import sort_key
from farthing.store.reader import Reader, order
from farthing.store.spaces import AETHER, NOSTR, Space
from farthing.store.sqlite import SqliteEngine
from infra.local.commands.bookkeeping import offline_agent
from infra.local.server.write_scheduler import WriteScheduler

_BATCH = 2048
# The largest JSON that fits into an item of the events table, beside the other attributes.
_LARGEST_EVENT = MAX_ITEM_BYTES - 4096
_WITHOUT_END = sys.maxsize
# New objects before the garbage collector runs: more than one batch makes.
_COLLECT_AFTER = 500_000
_BEGINNING = 4096  # bytes by which a file is recognised
# The beginning of every exported line.
_OPENINGS = {NOSTR.name: b'{"id":"', AETHER.name: b'{"event_id":"'}


class NotExported(Exception):
    """The file cannot be continued, because no export has begun it."""


@dataclass
class ImportReport:
    stored: int = 0
    duplicates: int = 0
    superseded: int = 0
    deleted: int = 0
    ephemeral: int = 0
    invalid: int = 0
    reasons: dict[str, int] = field(default_factory=dict)

    @property
    def events(self) -> int:
        """The number of lines with events that could be stored."""
        return self.stored + self.duplicates + self.superseded + self.deleted + self.ephemeral

    def count(self, outcome: Outcome | str) -> None:
        match outcome:
            case Outcome.STORED:
                self.stored += 1
            case Outcome.DUPLICATE:
                self.duplicates += 1
            case Outcome.SUPERSEDED:
                self.superseded += 1
            case Outcome.DELETED:
                self.deleted += 1
            case "ephemeral":
                self.ephemeral += 1
            case reason:
                self.invalid += 1
                self.reasons[str(reason)] = self.reasons.get(str(reason), 0) + 1


class _Here:
    """Passes results on at once: there is no event loop to wake."""

    def put(self, call: Callable[[], object]) -> None:
        call()


# The result of a line: an event to store, or the count that it belongs to.
_Read = Callable[[], Outcome] | str


class NotImported(Exception):
    """The store has failed. Events that were stored before stay, and the next run continues after
    them."""


class Importer:
    """Stores events from files and other relays, by the same policies as for every client."""

    def __init__(self, agent: Agent) -> None:
        assert isinstance(agent.engine, SqliteEngine)
        self._agent = agent
        self._scheduler = WriteScheduler(_Here(), hurried=False)
        agent.engine.park_in(self._scheduler)

    def close(self) -> None:
        self._scheduler.stop()

    def store(self, lines: list[bytes], report: ImportReport) -> None:
        """Returns when every line is stored durably or counted. Raises NotImported if the store has
        failed for one of them."""
        self.store_read(self.read(lines), report)

    def read(self, lines: list[bytes]) -> "list[_Read]":
        """Check the lines. Does not need the scheduler, so another thread may check lines ahead."""
        return [self._read(line) for line in lines if line.strip()]

    def store_read(self, lines: "Sequence[_Read]", report: ImportReport) -> None:
        outcomes: list[Outcome | str | NotImported] = []

        def store(save: Callable[[], Outcome]) -> None:
            try:
                outcomes.append(save())
            except Exception as error:
                outcomes.append(NotImported(f"the store has failed: {error}"))

        self._scheduler.run_together([partial(store, line) for line in lines if callable(line)])
        outcomes += [line for line in lines if not callable(line)]
        for outcome in outcomes:
            if isinstance(outcome, NotImported):
                raise outcome
            report.count(outcome)

    def _read(self, line: bytes) -> "_Read":
        try:
            value = orjson.loads(line)
            if isinstance(value, dict) and "event_id" in value:
                return self._read_aether(value)
            event = parse_event(value)
            verify(event)
            if event.keeping is Keeping.EPHEMERAL:
                return "ephemeral"
            if len(line) > _LARGEST_EVENT and len(event.to_json().encode()) > _LARGEST_EVENT:
                return f"over {_LARGEST_EVENT} bytes"
            check_policies(self._agent, event)
        except orjson.JSONDecodeError:
            return "not JSON"
        except InvalidEvent as error:
            return str(error)
        except Refused as refused:
            return str(refused)
        if event.is_protected and event.pubkey != self._agent.settings.pubkey:
            return "protected: only its author may publish it (NIP-70)"
        return partial(self._agent.events.save, event, payment=OWNER)

    def _read_aether(self, value: object) -> "_Read":
        try:
            event = read_aether_event(self._agent, value)
        except AetherError as error:
            return f"{error.code}: {error}"
        if event.keeping is Keeping.EPHEMERAL:
            return "ephemeral"
        return partial(self._agent.kept(AETHER).events.save, event, payment=OWNER)


def import_file(settings: Settings, source: Path | None, *, progress: bool) -> ImportReport:
    """Store the events of a file, or of stdin if none is given. After an interruption, the import
    of a file continues after the last durable line."""
    report = ImportReport()
    with offline_agent(settings) as agent, _rare_collection():
        importer = Importer(agent)
        try:
            if source is None:
                _import(importer, sys.stdin.buffer, None, report, progress)
            else:
                checkpoint = _Checkpoint(Path(settings.data), source)
                with source.open("rb") as file:
                    file.seek(checkpoint.offset())
                    _import(importer, file, checkpoint, report, progress)
                checkpoint.remove()
        finally:
            importer.close()
    return report


@contextmanager
def _rare_collection() -> Iterator[None]:
    """Let the garbage collector run rarely. Thousands of events are in memory at a time and none of
    them is garbage, so scanning them again and again takes a fifth of the time."""
    before = gc.get_threshold()
    gc.set_threshold(_COLLECT_AFTER, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _import(
    importer: Importer,
    file: IO[bytes],
    checkpoint: "_Checkpoint | None",
    report: ImportReport,
    progress: bool,
) -> None:
    if checkpoint is None:
        with _bar(None, 0, progress) as bar:
            while lines := _lines(file):
                importer.store(lines, report)
                bar.update(len(lines))
        return
    # The next lines are checked while these are stored: checks of signatures and waits for the disk
    # both release the interpreter lock.
    with _bar(checkpoint.size, file.tell(), progress) as bar, ThreadPoolExecutor(1) as ahead:
        coming = ahead.submit(_read_ahead, importer, file)
        while (batch := coming.result()) is not None:
            coming = ahead.submit(_read_ahead, importer, file)
            importer.store_read(batch.lines, report)
            checkpoint.save(batch.end)
            bar.update(batch.end - bar.n)


class _Batch(NamedTuple):
    lines: "list[_Read]"
    end: int  # its end in the file


def _read_ahead(importer: Importer, file: IO[bytes]) -> _Batch | None:
    lines = _lines(file)
    return _Batch(importer.read(lines), file.tell()) if lines else None


def _lines(file: IO[bytes]) -> list[bytes]:
    # Not by iterating, because `tell` must return the end of the last line.
    return list(takewhile(bool, (file.readline() for _ in range(_BATCH))))


def _bar(total: int | None, start: int, progress: bool) -> Any:
    unit = {"unit": "B", "unit_scale": True} if total is not None else {"unit": " events"}
    return tqdm(total=total, initial=start, disable=not progress, file=sys.stderr, **unit)


class _Checkpoint:
    """The imported part of a file, stored in the data folder until the import is complete. It is
    valid only if the beginning of the file is still the same: another file of the same name is
    imported from its start."""

    def __init__(self, data: Path, source: Path) -> None:
        name = sha256(str(source.resolve()).encode()).hexdigest()[:16]
        self._path = data / f"import-{name}"
        self._source = source

    @property
    def size(self) -> int:
        return self._source.stat().st_size

    def offset(self) -> int:
        try:
            offset, beginning = self._path.read_text().split()
            at = int(offset)
        except (FileNotFoundError, ValueError):
            return 0
        same = at <= self._source.stat().st_size and beginning == self._beginning(at)
        return at if same else 0

    def save(self, offset: int) -> None:
        partial = self._path.with_suffix(".new")
        partial.write_text(f"{offset} {self._beginning(offset)}")
        partial.replace(self._path)

    def _beginning(self, offset: int) -> str:
        with self._source.open("rb") as file:
            return sha256(file.read(min(offset, _BEGINNING))).hexdigest()

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)


def export_file(
    data: Path,
    target: Path | None,
    filter: Any,
    *,
    progress: bool,
    space: Space[Any] = NOSTR,
) -> int:
    """Write the events that match, newest first, one per line: to `target`, or to stdout if there
    is none.

    An existing target is continued after its last whole line.
    """
    engine = SqliteEngine(data)
    try:
        reader = Reader(engine, EventStore(engine, space), _WITHOUT_END)
        if target is None:
            return _write(reader.find(filter), sys.stdout.buffer, progress)
        last = _last_exported(target, space)
        with target.open("ab") as file:
            return _write(_behind(reader, filter, last), file, progress)
    finally:
        engine.close()


def _parse(space: Space[Any], line: bytes) -> Any:
    return (parse_aether_event if space is AETHER else parse_event)(orjson.loads(line))


def _write(events: Iterator[EventRecord[Any]], file: IO[bytes], progress: bool) -> int:
    number = 0
    for event in tqdm(events, disable=not progress, unit=" events", file=sys.stderr):
        file.write(event.json.encode() + b"\n")
        number += 1
    file.flush()
    return number


def _behind(reader: Reader[Any], filter: Any, last: str | None) -> Iterator[EventRecord[Any]]:
    return (event for event in reader.find(filter) if last is None or order(event) > last)


def _last_exported(target: Path, space: Space[Any]) -> str | None:
    """The place of the last whole line. Cuts off an incomplete line that an interruption has
    left."""
    if not target.exists():
        return None
    last, rest, whole = None, b"", 0
    with target.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                rest = line
                break
            last, whole = line, whole + len(line)
    try:
        event = None if last is None else _parse(space, last)
    except (InvalidEvent, AetherError, orjson.JSONDecodeError):
        raise NotExported(f"{target} is no export of ours: it is left as it is") from None
    if not rest.startswith(_OPENINGS[space.name][: len(rest)]):
        raise NotExported(f"{target} is no export of ours: it is left as it is")
    os.truncate(target, whole)
    return None if event is None else sort_key(event.created_at, event.id)
