"""The log of refusals: each is named with its reason, and strangers cannot fill the log."""

import logging

import pytest

from farthing.context import Agent
from farthing.nostr.events import public_key_of
from farthing.relay.refusals import note_refusal
from farthing.store.sqlite import SqliteEngine
from tests.relay.aether_world import client_of
from tests.relay.world import ALICE, Client, Clock, make_agent, signed

LOGGED = 3


@pytest.fixture
def agent(sqlite: SqliteEngine, clock: Clock, caplog: pytest.LogCaptureFixture) -> Agent:
    caplog.set_level(logging.INFO, "farthing")
    return make_agent(sqlite, clock, price_per_byte=10, refusals_logged_per_minute=LOGGED)


def test_a_refused_event_is_named_with_its_author(
    agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    event = signed(ALICE)

    Client(agent).publish(event)

    (line,) = caplog.records
    assert line.getMessage() == "refused EVENT"
    assert (line.event, line.author) == (event.id, public_key_of(ALICE))
    assert line.reason.startswith(("restricted: ", "auth-required: "))


def test_a_refused_request_is_named_with_the_reason(
    agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    Client(agent).send("REQ", "x", {"kinds": "all"})

    (line,) = caplog.records
    assert line.getMessage() == "refused REQ"
    assert line.reason.startswith("invalid: ")


def test_a_refused_aether_message_is_named_too(
    agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    client_of(agent, "one", ip="192.0.2.1").subscribe("x", {"unknown": 1})

    (line,) = caplog.records
    assert (line.getMessage(), line.client) == ("refused Aether message", "192.0.2.1")


def test_a_minute_has_few_lines_and_the_next_one_tells_how_many_more_there_were(
    agent: Agent, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(LOGGED + 7):
        note_refusal(agent, "EVENT", "no")
    assert len(caplog.records) == LOGGED

    clock.now += 60
    note_refusal(agent, "EVENT", "no")

    *_, told, line = caplog.records
    assert (told.getMessage(), told.refusals) == ("more was refused", 7)
    assert line.getMessage() == "refused EVENT"


def test_what_strangers_choose_is_cut(agent: Agent, caplog: pytest.LogCaptureFixture) -> None:
    note_refusal(agent, "x" * 9999, "y" * 9999, client="z" * 9999)

    (line,) = caplog.records
    assert max(map(len, (line.getMessage(), line.reason, line.client))) < 250


def test_none_are_logged_where_none_are_wanted(
    sqlite: SqliteEngine, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "farthing")
    silent = make_agent(sqlite, clock, refusals_logged_per_minute=0)

    for _ in range(2):
        note_refusal(silent, "EVENT", "no")
        clock.now += 60

    assert not caplog.records
