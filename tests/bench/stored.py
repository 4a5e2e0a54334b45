"""Data folders with many stored events, made without signatures and kept for the next run.

They go through the table port as the event store would write them, many to a commit. A folder is
made anew when what the engine writes for the same events has changed.
"""

import fcntl
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from hashlib import sha256
from itertools import islice
from pathlib import Path

from tqdm import tqdm

from farthing.nostr.events import Event, compute_id
from farthing.store.events import event_item
from farthing.store.postings import Lists
from farthing.store.spaces import NOSTR
from farthing.store.sqlite import SqliteEngine
from farthing.store.table import Put, Table
from tests.e2e.relay_process import ROOT

_CACHE = ROOT / ".cache" / "bench-stored"
_BATCH = 50_000
_SAMPLE = 20
_CONSUMER = "fanout"

EVENTS_OF_AN_AUTHOR = 200
START = 1_700_000_000


def author(number: int) -> str:
    return sha256(b"author %d" % number).hexdigest()


def mentioned(number: int) -> str:
    return sha256(b"mentioned %d" % number).hexdigest()


def authors_in(number: int) -> int:
    """How many authors, and as many who are mentioned, share so many events."""
    return max(1, number // EVENTS_OF_AN_AUTHOR)


def stored_events(number: int) -> Iterator[Event]:
    """One a second. Every author has 160 notes and 40 reactions, and 200 mention each of them."""
    authors = authors_in(number)
    for each in range(number):
        turn, who = divmod(each, authors)
        pubkey, kind = author(who), 7 if turn % 5 == 0 else 1
        other = mentioned((who + turn) % authors)
        tags = (("e", sha256(b"root %d" % each).hexdigest()), ("p", other))
        content = f"the quick brown fox jumps over the lazy dog and says so, event {each}"
        identity = compute_id(pubkey, START + each, kind, tags, content)
        yield Event(identity, pubkey, START + each, kind, tags, content, identity * 2)


def stored_folder(number: int) -> Path:
    """A data folder with so many events."""
    group = _CACHE / str(number)
    folder = group / _fingerprint()
    with _held(group.with_suffix(".lock")):
        if not (folder / "complete").exists():
            shutil.rmtree(group, ignore_errors=True)
            build(folder, number, progress=True)
            (folder / "complete").touch()
    return folder


@contextmanager
def _held(path: Path) -> Iterator[None]:
    """One process at a time builds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def build(folder: Path, number: int, *, progress: bool = False) -> None:
    engine = SqliteEngine(folder)
    try:
        engine.stream_position(_CONSUMER)
        events = stored_events(number)
        with tqdm(total=number, unit=" events", file=sys.stderr, disable=not progress) as bar:
            while batch := list(islice(events, _BATCH)):
                # In the order of the keys: each page is then changed once a batch.
                engine.write_batch(sorted(_writes(batch), key=lambda put: put[:3]))
                _forget_stream(engine)
                bar.update(len(batch))
    finally:
        engine.close()


def _writes(events: list[Event]) -> list[Put]:
    puts = [Put(Table.EVENTS, event.id, "e", event_item(event, 0)) for event in events]
    lists = Lists(NOSTR, SqliteEngine.shards)
    for event in events:
        puts.extend(lists.postings(event, 0, None))
    return puts


def _forget_stream(engine: SqliteEngine) -> None:
    """Nobody waits for these events: a server that starts here has nothing to catch up with."""
    last = 0
    while changes := engine.stream_after(last, _BATCH):
        last = changes[-1].sequence
    engine.stream_advance({_CONSUMER: last})


def _fingerprint() -> str:
    """Of the schema, and of what a few events look like in the file."""
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder), _SAMPLE)
        with closing(sqlite3.connect(Path(folder) / "farthing.db")) as connection:
            digest = sha256()
            for line in connection.iterdump():
                digest.update(line.encode() + b"\n")
    return digest.hexdigest()[:16]
