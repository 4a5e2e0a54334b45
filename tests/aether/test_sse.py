"""Event streams: the vector's body, and the number a client comes back with."""

import orjson
import pytest

from farthing.aether import sse
from farthing.aether.errors import InvalidMessage
from farthing.aether.events import parse_event
from tests.aether.known import EVENTS, VECTORS

SUB_ID = "sub-0123456789abcdef0123456789abcdef"


def blocks(body: str) -> list[dict[str, object]]:
    """The body as an EventSource reads it, `data` as JSON."""
    found: list[dict[str, object]] = []
    for block in body.removesuffix("\n\n").split("\n\n"):
        fields: dict[str, object] = dict(line.split(": ", 1) for line in block.split("\n"))
        if "data" in fields:
            fields["data"] = orjson.loads(str(fields["data"]))
        found.append(fields)
    return found


def test_a_body_has_the_bytes_of_the_vectors() -> None:
    event = parse_event(EVENTS["immutable"]["event"])

    body = sse.body(SUB_ID, [(17, event.to_json())], 20, retry_milliseconds=2000)

    assert blocks(body) == blocks(VECTORS["sse"]["body"])
    assert body == VECTORS["sse"]["body"]


@pytest.mark.parametrize("content", ["a\nb", "a\r\nb", "\u2028", "data: x\n\nid: 9\n\n"])
def test_content_cannot_break_a_line(content: str) -> None:
    json = parse_event({**EVENTS["immutable"]["event"], "content": content}).to_json()

    block = sse.event(1, SUB_ID, json)

    assert block.count("\n") == 4
    assert "\r" not in block
    assert blocks(block)[0]["data"] == {
        "type": "event",
        "sub_id": SUB_ID,
        "event": {**EVENTS["immutable"]["event"], "content": content},
    }


def test_a_heartbeat_is_a_comment() -> None:
    assert sse.heartbeat().startswith(":")
    assert sse.heartbeat().endswith("\n\n")


def test_only_a_plain_number_is_a_last_event_id() -> None:
    assert sse.parse_last_event_id("17") == 17
    assert sse.parse_last_event_id(None) is None
    assert sse.parse_last_event_id("") is None
    for text in ("x", "-1", "1.5", " 1", "٣", "9" * 20, "9" * 5000):
        with pytest.raises(InvalidMessage):
            sse.parse_last_event_id(text)
