"""The body of an event stream (server-sent events): what `GET /v1/stream` answers with.

The id of an event is its number in the log, so a client that comes back with it misses nothing.
"""

import re
from collections.abc import Iterable

import orjson

from farthing.aether.errors import InvalidMessage
from farthing.aether.numbers import MAX_U64

_NUMBER = re.compile(r"[0-9]{1,20}").fullmatch


def retry(milliseconds: int) -> str:
    """How long a client waits before it comes back."""
    return f"retry: {milliseconds}\n\n"


def event(number: int, sub_id: str, event_json: str) -> str:
    """One event; its JSON has no line breaks, so it is one line of data."""
    head = f'{{"type":"event","sub_id":{orjson.dumps(sub_id).decode()},"event":'
    return f"id: {number}\nevent: event\ndata: {head}{event_json}}}\n\n"


def position(number: int) -> str:
    """Where the log has been read to: clients keep the number, and no event is raised."""
    return f"id: {number}\n\n"


def heartbeat() -> str:
    """A comment, which keeps the connection open and means nothing."""
    return ":\n\n"


def body(
    sub_id: str, events: Iterable[tuple[int, str]], end: int, *, retry_milliseconds: int
) -> str:
    """A whole answer: the events with their numbers, then the end of the log."""
    parts = (event(number, sub_id, event_json) for number, event_json in events)
    return "".join((retry(retry_milliseconds), *parts, position(end)))


def parse_last_event_id(text: str | None) -> int | None:
    """The number to go on after, None where the client names none."""
    if not text:
        return None
    if not _NUMBER(text) or int(text) > MAX_U64:
        raise InvalidMessage("Last-Event-ID: expected the number of an event")
    return int(text)
