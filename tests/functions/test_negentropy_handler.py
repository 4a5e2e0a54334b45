"""The function behind NEG-OPEN, NEG-MSG and NEG-CLOSE, over moto, with API Gateway's payloads."""

import json
from typing import Any

import pytest

from farthing.context import Agent
from farthing.relay.sealed_sets import SEALED
from tests.functions.conftest import Invoke, sample
from tests.relay.world import connections_of

CONTEXT = sample("connect")["requestContext"]
CONNECTION = CONTEXT["connectionId"]
EMPTY = "6100000200"
DONE = {"statusCode": 200}


@pytest.fixture(autouse=True)
def connected(agent: Agent) -> None:
    agent.sessions.connect(CONNECTION, "challenge", CONTEXT["domainName"], agent.now)
    SEALED.clear()


def message(*parts: object, later_ms: int = 1) -> dict[str, Any]:
    """The sample's payload with another body, sent a little later."""
    event = sample("negentropy")
    event["requestContext"]["routeKey"] = parts[0]
    event["requestContext"]["requestTimeEpoch"] += later_ms
    event["body"] = json.dumps(parts)
    return event


def body(response: dict[str, Any]) -> Any:
    assert response["statusCode"] == 200
    return json.loads(response["body"])


def test_the_answer_comes_back_as_the_routes_response(agent: Agent, invoke: Invoke) -> None:
    invoke("event")
    note = json.loads(sample("event")["body"])[1]
    connections_of(agent).take(CONNECTION)

    assert body(invoke("negentropy")) == ["NEG-MSG", "sync", "6100000201" + note["id"]]
    assert connections_of(agent).posted == []  # no @connections request


def test_a_cold_container_goes_on_where_another_one_was(invoke: Invoke) -> None:
    invoke("event")
    first = body(invoke("negentropy"))
    SEALED.clear()

    assert body(invoke("negentropy", message("NEG-MSG", "sync", EMPTY))) == first


def test_a_close_ends_it(agent: Agent, invoke: Invoke) -> None:
    invoke("negentropy")

    assert invoke("negentropy", message("NEG-CLOSE", "sync")) == DONE
    after = message("NEG-MSG", "sync", EMPTY, later_ms=2)
    assert body(invoke("negentropy", after)) == ["NEG-ERR", "sync", "CLOSED"]
    assert agent.syncs.open_ids(CONNECTION) == set()


def test_a_close_that_overtakes_its_open(agent: Agent, invoke: Invoke) -> None:
    invoke("negentropy", message("NEG-CLOSE", "sync"))

    assert invoke("negentropy") == DONE
    assert agent.syncs.open_ids(CONNECTION) == set()


def test_a_client_that_leaves_takes_its_syncs_along(agent: Agent, invoke: Invoke) -> None:
    invoke("negentropy")

    assert invoke("disconnect") == DONE
    assert agent.syncs.open_ids(CONNECTION) == set()
    assert len(SEALED) == 0


def test_the_default_route_serves_it_as_well(invoke: Invoke) -> None:
    assert body(invoke("default", sample("negentropy")))[0] == "NEG-MSG"


def test_a_message_without_a_body(invoke: Invoke) -> None:
    empty = {**sample("negentropy"), "body": None}

    assert body(invoke("negentropy", empty)) == ["NOTICE", "invalid: expected JSON"]
