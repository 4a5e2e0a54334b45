"""A process that reads for the server: it answers filters from the database file, which it never
writes, one after another, until the server closes the connection or ends.

It is started with the file's path, and with the connection as its standard input. Every message is
preceded by its length. A request has its time in seconds, the number of index entries that may be
read for it, and the filters. The first octet of an answer is its kind.
"""

import gc
import signal
import socket
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import Final

import orjson

from farthing.nostr.events import Event
from farthing.nostr.filters import Filter, parse_filter
from farthing.store.answers import PassedEvent, pack_answer, passed
from farthing.store.events import EventStore
from farthing.store.planner import ScanAllowance, ScanTooLong, plan
from farthing.store.postings import highest_sort_key, lowest_sort_key
from farthing.store.reader import Reader
from farthing.store.recall import Reading
from farthing.store.spaces import NOSTR
from farthing.store.sqlite_read_only import ReadOnlyEngine
from farthing.store.table import Query, StoreError, Table

READY: Final = b"r"
# The kinds of answers: found, left to the server, or the message of an error.
FOUND: Final = b"f"
LEFT: Final = b"l"
FAILED: Final = b"e"

_LENGTH: Final = Struct(">I")
_REQUEST: Final = Struct(">QI")
# The most octets of events in one answer. The server reads longer answers itself, as fast as the
# client takes them.
_LONGEST_ANSWER: Final = 2 * 1024 * 1024
_COLLECT_AFTER = 50_000  # new objects; requests leave hardly any reference cycles behind


class Ended(OSError):
    """The other side has closed the connection."""


def send(connection: socket.socket, *parts: bytes) -> None:
    connection.sendall(b"".join([_LENGTH.pack(sum(map(len, parts))), *parts]))


def receive(connection: socket.socket) -> bytes:
    (length,) = _LENGTH.unpack(_receive(connection, _LENGTH.size))
    return _receive(connection, length)


def _receive(connection: socket.socket, length: int) -> bytes:
    # In one call, because a thread has to get the interpreter lock back after each.
    received = connection.recv(length, socket.MSG_WAITALL)
    while len(received) < length:
        more = connection.recv(length - len(received), socket.MSG_WAITALL)
        if not more:
            raise Ended("the connection was closed")
        received += more
    return received


def request(filters: str, now: int, most: int) -> bytes:
    return _REQUEST.pack(now, most) + filters.encode()


class Answerer:
    """Answers requests from the database file at `path`."""

    def __init__(self, path: Path) -> None:
        self._now = 0
        self._engine = ReadOnlyEngine(path, clock=self._clock)
        events = EventStore(self._engine, NOSTR, clock=self._clock)
        self._lists = events.lists
        self._reader = Reader(self._engine, events, max_scan=0)

    def _clock(self) -> float:
        """The server's time, so that the same events have expired."""
        return self._now

    def answer(self, request: bytes) -> tuple[bytes, bytes]:
        """The kind of the answer, and the answer."""
        try:
            self._now, most = _REQUEST.unpack_from(request)
            filters = list(map(parse_filter, orjson.loads(request[_REQUEST.size :])))
            with self._engine.snapshot():
                found = self._newest(filters, most) or find(self._reader, filters, most)
        except Exception as error:
            return FAILED, _words(error)
        return (LEFT, b"") if found is None else (FOUND, found)

    def _newest(self, filters: Sequence[Filter], most: int) -> bytes | None:
        """The same as `find`, for a filter that one list answers. None if `find` has to look."""
        filter = filters[0]
        if len(filters) > 1 or filter.ids is not None or not 0 < (filter.limit or 0) <= most:
            return None
        chosen = plan(filter, self._lists)
        if len(chosen.lists) > 1 or not chosen.lists or set(filter.tags) - {chosen.answered_tag}:
            return None
        low, high = lowest_sort_key(filter.until), highest_sort_key(filter.since)
        query = Query(Table.POSTINGS, chosen.lists[0], low, high, limit=filter.limit)
        events = self._engine.newest_events(query, _LONGEST_ANSWER)
        if events is None or not all(_is_public_and_matches(filter, event) for event in events):
            return None
        return pack_answer(events, lasts=True)


def _is_public_and_matches(filter: Filter, event: PassedEvent) -> bool:
    if event.kind in NOSTR.private_kinds:
        return False
    has_kind = filter.kinds is None or event.kind in filter.kinds
    return has_kind and (filter.authors is None or event.author.hex() in filter.authors)


def _words(error: Exception) -> bytes:
    return f"{type(error).__name__}: {error}".encode()


def find(reader: Reader[Event], filters: Sequence[Filter], most: int) -> bytes | None:
    """A packed answer. None if the limit of index entries is too low, if an event is private, or if
    the events are too long together."""
    reading, events, octets = Reading(), list[PassedEvent](), 0
    try:
        for record in reader.find_any(filters, allowance=ScanAllowance(most), reading=reading):
            octets += len(record.octets)
            if record.kind in NOSTR.private_kinds or octets > _LONGEST_ANSWER:
                return None
            events.append(passed(record))
    except ScanTooLong:
        return None
    return pack_answer(events, lasts=not reading.spoiled)


def main() -> None:
    # This process ends when the connection is closed. It ignores a terminal's Ctrl-C, because the
    # server may still have requests to answer.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, 20, 20)
    with suppress(Ended, BrokenPipeError, ConnectionResetError):
        _serve(socket.socket(fileno=0), Path(sys.argv[1]))


def _serve(connection: socket.socket, path: Path) -> None:
    try:
        answerer = Answerer(path)
    except (StoreError, sqlite3.Error) as error:  # for example, the server was killed
        send(connection, FAILED, _words(error))
        return
    send(connection, READY)
    while True:
        send(connection, *answerer.answer(receive(connection)))


if __name__ == "__main__":
    main()
