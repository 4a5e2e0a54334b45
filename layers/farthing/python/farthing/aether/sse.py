"""The body of an event stream (server-sent events), the answer of `GET /v1/stream`.

The id of an event is its number in the log, so a client that reconnects with the id misses no
event.
"""

import re
from collections.abc import Iterable

import orjson

from farthing.aether.errors import InvalidMessage
from farthing.aether.numbers import MAX_U64

_NUMBER = re.compile(r"[0-9]{1,20}").fullmatch


def retry(milliseconds: int) -> str:
    """The time that a client waits before it reconnects."""
    return f"retry: {milliseconds}\n\n"


def event(number: int, sub_id: str, event_json: str) -> str:
    """One event; its JSON has no line breaks, so it is one line of data."""
    head = f'{{"type":"event","sub_id":{orjson.dumps(sub_id).decode()},"event":'
    return f"id: {number}\nevent: event\ndata: {head}{event_json}}}\n\n"


def position(number: int) -> str:
    """The end of the part of the log that was read. Clients store the number, and raise no
    event."""
    return f"id: {number}\n\n"


def heartbeat() -> str:
    """A comment, which only keeps the connection open."""
    return ":\n\n"


def body(
    sub_id: str, events: Iterable[tuple[int, str]], end: int, *, retry_milliseconds: int
) -> str:
    """A whole answer: the events with their numbers, then the end of the log."""
    parts = (event(number, sub_id, event_json) for number, event_json in events)
    return "".join((retry(retry_milliseconds), *parts, position(end)))


def parse_last_event_id(text: str | None) -> int | None:
    """The number after which the stream continues, or None if the client names none."""
    if not text:
        return None
    if not _NUMBER(text) or int(text) > MAX_U64:
        raise InvalidMessage("Last-Event-ID: expected the number of an event")
    return int(text)
