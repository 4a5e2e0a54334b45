"""Full-text search on one machine: an index of SQLite's FTS5, in a file of its own beside the data.

The stream of the events table updates it. It can be deleted at any time, and is then built again
from the stored events. Readers look up every hit in the store, so no answer is wrong if the index
lags behind.
"""

import logging
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from farthing.context import Agent
from farthing.handlers.streams import event_in
from farthing.nostr.events import Event
from farthing.nostr.filters import Filter, search_words
from farthing.nostr.kinds import PRIVATE_KINDS
from farthing.store.events import space_of
from farthing.store.planner import ScanAllowance
from farthing.store.private_files import private_file
from farthing.store.spaces import NOSTR
from farthing.store.streams import parse_record
from farthing.store.table import Table
from farthing.surface import Stream

log = logging.getLogger("farthing")

# Only one machine has this consumer, so the surface does not name it.
SEARCH_STREAM = Stream("search", Table.EVENTS, patience_minutes=5, pause_seconds=0.05)

_FILE = "search.db"
_AT_ONCE = 500
_RETRY_SECONDS = 1.0
_WITHOUT_END = 2**53
_COMPLETE = "complete"


class FtsSearch:
    """Many threads may use it: there is one connection with a lock."""

    is_on = True

    def __init__(self, folder: Path) -> None:
        path = folder / _FILE
        private_file(path)
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._catching_up: threading.Thread | None = None
        self._connection = sqlite3.connect(path, check_same_thread=False)
        # After a crash, lost entries are written again from the stream.
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")
        self._connection.executescript(
            """
            CREATE TABLE IF NOT EXISTS ids (id TEXT PRIMARY KEY, row INTEGER NOT NULL);
            CREATE TABLE IF NOT EXISTS marks (name TEXT PRIMARY KEY);
            CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5(content, id UNINDEXED);
            """
        )

    def close(self) -> None:
        self._stopping.set()
        if self._catching_up is not None:
            self._catching_up.join()
        with self._lock:
            self._connection.close()

    def start(self, agent: Agent) -> None:
        """Catch up in a thread of its own: an older data folder may hold a million events."""
        self._catching_up = threading.Thread(
            target=self._keep_catching_up, args=(agent,), name="search"
        )
        self._catching_up.start()

    def find(self, text: str, most: int) -> list[str]:
        query = _query(text)
        if not query:
            return []
        statement = "SELECT id FROM words WHERE words MATCH ? ORDER BY rank, rowid DESC LIMIT ?"
        with self._lock:
            return [row[0] for row in self._connection.execute(statement, (query, most))]

    def handle(self, batch: dict[str, Any], _context: object) -> dict[str, Any]:
        """Handle a batch of stream records."""
        new, gone = [], []
        for record in batch["Records"]:
            change = parse_record(record)
            if change.table is not Table.EVENTS or space_of(change.pk, change.sk) is not NOSTR:
                continue
            found = event_in(record, change)
            if found is None:
                gone.append(change.pk)
            else:
                new.append(found[1].event)
        self._write(new, gone)
        return {"batchItemFailures": []}

    def _keep_catching_up(self, agent: Agent) -> None:
        while not self._stopping.is_set():
            try:
                self._catch_up(agent)
            except Exception as error:
                reason = str(error) or type(error).__name__
                log.warning("the search index will try again to catch up: %s", reason)
                self._stopping.wait(_RETRY_SECONDS)
            else:
                return

    def _catch_up(self, agent: Agent) -> None:
        """Index the events that were stored before there was an index. After an interruption this
        starts again, and skips events that are indexed already."""
        with self._lock:
            marks = self._connection.execute("SELECT 1 FROM marks WHERE name = ?", (_COMPLETE,))
            if marks.fetchone():
                return
        all_of_them = agent.reader.find(Filter(), allowance=ScanAllowance(_WITHOUT_END))
        events = (record.event for record in all_of_them)
        while not self._stopping.is_set():
            some = list(islice(events, _AT_ONCE))
            if not some:
                break
            self._write(some, ())
        else:
            return
        with self._lock, self._connection:
            self._connection.execute("INSERT OR IGNORE INTO marks VALUES (?)", (_COMPLETE,))

    def _write(self, new: Iterable[Event], gone: Iterable[str]) -> None:
        with self._lock, self._connection:
            for event_id in gone:
                self._forget(event_id)
            for event in _searchable(new):
                cursor = self._connection.cursor()
                known = cursor.execute("SELECT 1 FROM ids WHERE id = ?", (event.id,)).fetchone()
                if known:
                    continue
                cursor.execute("INSERT INTO words VALUES (?, ?)", (event.content, event.id))
                cursor.execute("INSERT INTO ids VALUES (?, ?)", (event.id, cursor.lastrowid))

    def _forget(self, event_id: str) -> None:
        found = self._connection.execute("SELECT row FROM ids WHERE id = ?", (event_id,)).fetchone()
        if found:
            self._connection.execute("DELETE FROM words WHERE rowid = ?", found)
            self._connection.execute("DELETE FROM ids WHERE id = ?", (event_id,))


def _searchable(events: Iterable[Event]) -> Iterator[Event]:
    return (event for event in events if event.content and event.kind not in PRIVATE_KINDS)


def _query(text: str) -> str:
    """All words, each in quotes, so that no word of a stranger is an operator."""
    return " ".join(f'"{word}"' for word in search_words(text))
