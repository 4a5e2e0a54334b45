"""The log: levels, and lines that people or programs read."""

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from farthing.settings import Settings
from infra.local.server.logs import configure_logs
from tests.e2e.authors import Author
from tests.e2e.client import Background, connected
from tests.e2e.http import request
from tests.e2e.relay_process import RelayProcess

log = logging.getLogger("farthing.test")


Written = Callable[[], str]


@pytest.fixture
def written(capsys: pytest.CaptureFixture[str]) -> Iterator[Written]:
    """What has been written to the log."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers.clear()  # pytest's own would be closed
    yield lambda: capsys.readouterr().err
    root.handlers[:], root.level = before, level


def objects(written: Written) -> list[dict[str, Any]]:
    return [json.loads(line) for line in written().splitlines()]


def test_lower_levels_are_left_out(written: Written) -> None:
    configure_logs(Settings(log_level="warning"))
    log.info("quiet")
    log.warning("loud")
    text = written()
    assert text.endswith(" WARNING loud\n")
    assert "quiet" not in text


def test_fields_stand_behind_the_message(written: Written) -> None:
    configure_logs(Settings())
    log.info("stored", extra={"peer": "alice", "amount": 5})
    assert written().endswith(" INFO stored peer=alice amount=5\n")


def test_strangers_can_neither_begin_a_line_nor_colour_one(written: Written) -> None:
    configure_logs(Settings())
    log.warning("the relay says %s", "a\n2026-11-18 INFO forged \x1b[31m", extra={"by": "b\nc"})
    (line,) = written().splitlines()
    assert "\x1b" not in line
    try:
        raise ValueError("\x1b[2J")
    except ValueError:
        log.exception("failed")
    assert "\x1b" not in written()


def test_json_has_one_object_a_line_whatever_is_in_it(written: Written) -> None:
    configure_logs(Settings(log_format="json"))
    log.warning("first\nsecond", extra={"peer": "a\nb", "kind": 1})
    try:
        raise ValueError("no")
    except ValueError:
        log.exception("failed")
    first, second = objects(written)
    assert (first["level"], first["logger"]) == ("warning", "farthing.test")
    assert (first["message"], first["peer"], first["kind"]) == ("first\nsecond", "a\nb", 1)
    assert first["time"].endswith("Z")
    assert "ValueError: no" in second["error"]


def test_a_server_at_debug_tells_of_requests(
    start_relay: Callable[..., RelayProcess], background: Background
) -> None:
    relay = start_relay(log_format="json", log_level="debug")
    secret = {"Authorization": "Bearer very-secret-token"}
    request(background, "GET", f"{relay.http}/healthz?q=private", secret)
    relay.stop()
    text = relay.log_path.read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    (told,) = [line for line in lines if line.get("path") == "/healthz"]
    assert (told["method"], told["status"], told["client"]) == ("GET", 200, "127.0.0.1")
    assert "very-secret-token" not in text
    assert "private" not in text


def test_the_log_names_what_was_refused(
    start_relay: Callable[..., RelayProcess], background: Background
) -> None:
    relay = start_relay(log_format="json", price_per_byte=10)
    event = Author().event("unpaid")
    with connected(background, relay.url) as client:
        assert client.publish(event)[0] is False
    request(background, "GET", f"{relay.http}/v1/operator", {})
    relay.stop()

    text = relay.log_path.read_text()
    lines = {line["message"]: line for line in map(json.loads, text.splitlines())}
    refused = lines["refused EVENT"]
    assert (refused["author"], refused["event"]) == (event["pubkey"], event["id"])
    assert (refused["level"], refused["client"]) == ("info", "127.0.0.1")
    assert lines["refused GET /v1/operator"]["reason"] == "expected the authorization scheme Nostr"
