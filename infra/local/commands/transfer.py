"""Events as lines of JSON, in and out: streamed, verified, resumable.

Both work on the data folder, also while the server runs on it.
"""

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from itertools import takewhile
from pathlib import Path
from typing import IO, Any

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
from farthing.store.planner import Reader, order
from farthing.store.postings import sort_key
from farthing.store.spaces import AETHER, NOSTR, Space
from farthing.store.sqlite import SqliteEngine
from infra.local.commands.bookkeeping import offline_agent
from infra.local.server.write_scheduler import WriteScheduler

_BATCH = 512
# What an item of the events table has room for, beside the event's other attributes.
_LARGEST_EVENT = MAX_ITEM_BYTES - 4096
_WITHOUT_END = sys.maxsize
_BEGINNING = 4096  # bytes by which a file is known again


_OPENINGS = {NOSTR.name: b'{"id":"', AETHER.name: b'{"event_id":"'}  # of every line that we write


class NotExported(Exception):
    """A file that cannot be continued, since it was not begun by an export."""


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
        """How many lines were events that could have been stored."""
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
    """Results come back at once: there is no event loop to wake."""

    def put(self, call: Callable[[], object]) -> None:
        call()


class NotImported(Exception):
    """The store has failed; what was stored before counts, and the next run goes on from there."""


class Importer:
    """Stores events of others' files and relays, by the policies that hold for everybody."""

    def __init__(self, agent: Agent) -> None:
        assert isinstance(agent.engine, SqliteEngine)
        self._agent = agent
        self._scheduler = WriteScheduler(_Here())
        agent.engine.park_in(self._scheduler)

    def close(self) -> None:
        self._scheduler.stop()

    def store(self, lines: list[bytes], report: ImportReport) -> None:
        """Returns when every line is stored durably, or counted as what it is. NotImported if the
        store has failed for one of them."""
        outcomes: list[Outcome | str | NotImported] = []

        def store(line: bytes) -> None:
            outcomes.append(self._store(line))

        self._scheduler.run_all([partial(store, line) for line in lines])
        for outcome in outcomes:
            if isinstance(outcome, NotImported):
                raise outcome
            report.count(outcome)

    def _store(self, line: bytes) -> Outcome | str | NotImported:
        try:
            value = orjson.loads(line)
            if isinstance(value, dict) and "event_id" in value:
                return self._store_aether(value)
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
        try:
            return self._agent.events.save(event, payment=OWNER)
        except Exception as error:
            return NotImported(f"the store has failed: {error}")

    def _store_aether(self, value: object) -> Outcome | str | NotImported:
        try:
            event = read_aether_event(self._agent, value)
        except AetherError as error:
            return f"{error.code}: {error}"
        if event.keeping is Keeping.EPHEMERAL:
            return "ephemeral"
        try:
            return self._agent.kept(AETHER).events.save(event, payment=OWNER)
        except Exception as error:
            return NotImported(f"the store has failed: {error}")


def import_file(settings: Settings, source: Path | None, *, progress: bool) -> ImportReport:
    """Store the events of a file, or of stdin without one. After an interruption the import of a
    file goes on where it was durable."""
    report = ImportReport()
    with offline_agent(settings) as agent:
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


def _import(
    importer: Importer,
    file: IO[bytes],
    checkpoint: "_Checkpoint | None",
    report: ImportReport,
    progress: bool,
) -> None:
    total = None if checkpoint is None else checkpoint.size
    start = 0 if checkpoint is None else file.tell()
    with _bar(total, start, progress) as bar:
        while lines := _lines(file):
            importer.store([line for line in lines if line.strip()], report)
            if checkpoint is None:
                bar.update(len(lines))
            else:
                checkpoint.save(file.tell())
                bar.update(file.tell() - bar.n)


def _lines(file: IO[bytes]) -> list[bytes]:
    # Not by iterating: `tell` has to say where the last line ends.
    return list(takewhile(bool, (file.readline() for _ in range(_BATCH))))


def _bar(total: int | None, start: int, progress: bool) -> Any:
    unit = {"unit": "B", "unit_scale": True} if total is not None else {"unit": " events"}
    return tqdm(total=total, initial=start, disable=not progress, file=sys.stderr, **unit)


class _Checkpoint:
    """How far a file has been imported, kept beside the data until it is through. It counts only
    while the file begins as it did: another of the same name is imported from its start."""

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
    """Write the events that match, newest first, one a line; to stdout without a target.

    A target that is there already is continued behind its last whole line.
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
    """The place of the last whole line, after cutting off what an interruption left behind it."""
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
