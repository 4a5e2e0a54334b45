"""Aether's functions with their sample payloads, and Aether frames behind API Gateway."""

import json
from typing import Any

import pytest

from farthing.aether.capabilities import issue
from farthing.aether.keys import owner_seed, public_key
from farthing.context import Agent
from farthing.relay.sequence import number_events
from farthing.store.changes import Arrival
from farthing.store.spaces import AETHER
from tests.aether.known import VECTORS
from tests.functions.conftest import Invoke, sample
from tests.relay.aether_world import ALICE, as_body, signed
from tests.relay.world import OWNER, connections_of

CONNECTION = sample("connect")["requestContext"]["connectionId"]
SUBSCRIPTION = "sub-0123456789abcdef0123456789abcdef"


def post(name: str, body: object) -> dict[str, Any]:
    return {**sample(name), "body": json.dumps(body)}


def test_a_stream_is_a_short_answer(agent: Agent, invoke: Invoke) -> None:
    assert json.loads(invoke("subscriptions")["body"]) == {"subscription_id": SUBSCRIPTION}
    assert invoke("subscriptions")["statusCode"] == 409
    empty = invoke("stream")
    assert empty["statusCode"] == 200
    assert empty["headers"]["Content-Type"] == "text/event-stream"
    assert empty["body"] == "retry: 2000\n\nid: 0\n\n"
    event = signed()
    answer = invoke("events", post("events", as_body(event)))
    assert json.loads(answer["body"]) == {
        "accepted": True, "event_id": event.id, "message": "accepted",
    }  # fmt: skip
    number_events(agent, [Arrival(event.id, event.pubkey, event.kind)], AETHER)
    retry, block, position, _ = invoke("stream")["body"].split("\n\n")
    number, name, data = block.split("\n")
    assert (retry, number, name, position) == ("retry: 2000", "id: 1", "event: event", "id: 1")
    assert json.loads(data.removeprefix("data: ")) == {
        "type": "event", "sub_id": SUBSCRIPTION, "event": as_body(event),
    }  # fmt: skip
    gone = {
        **sample("subscriptions"),
        "routeKey": "DELETE /v1/subscriptions/{id+}",
        "pathParameters": {"id": SUBSCRIPTION},
        "body": "",
    }
    gone["requestContext"]["http"]["method"] = "DELETE"
    assert json.loads(invoke("subscriptions", gone)["body"]) == {
        "deleted": True, "subscription_id": SUBSCRIPTION,
    }  # fmt: skip
    assert invoke("stream")["statusCode"] == 404


@pytest.mark.parametrize(
    ("headers", "is_marked"),
    [
        ({}, False),
        ({"X-Farthing-Path": "/"}, False),
        ({"X-Farthing-Path": "/v1/ws"}, True),
        ({"x-farthing-path": "/v1/ws"}, True),
        ({"Sec-WebSocket-Protocol": "other, aether.v1"}, True),
        ({"Sec-WebSocket-Protocol": "other"}, False),
        ({"Sec-WebSocket-Protocol": "aether.v10"}, False),
    ],
)
def test_the_path_or_the_subprotocol_marks_a_connection_as_aether(
    agent: Agent, invoke: Invoke, headers: dict[str, str], is_marked: bool
) -> None:
    event = sample("connect")
    event["headers"] = {**event["headers"], **headers}
    response = invoke("connect", event)
    connection = agent.sessions.get(CONNECTION)
    assert connection is not None
    assert connection.is_aether is is_marked
    chosen = response.get("headers", {}).get("Sec-WebSocket-Protocol")
    assert chosen == ("aether.v1" if is_marked and "Sec-WebSocket-Protocol" in headers else None)


def test_frames_come_as_base64_and_are_answered_so(agent: Agent, invoke: Invoke) -> None:
    invoke("connect")
    (hello,) = [each for each in VECTORS["frames"]["messages"] if each["type"] == "hello"]
    event = {**sample("default"), "body": hello["base64"]}
    response = invoke("default", event)
    frames = connections_of(agent).take_frames(event["requestContext"]["connectionId"])
    (welcome,) = [response["body"]] if "body" in response else frames
    assert "{" not in str(welcome)


@pytest.mark.parametrize(
    ("name", "authorizer"),
    [
        ("default", {"principalId": "viewer", "viewer": "192.0.2.7"}),
        ("events", {"lambda": {"viewer": "192.0.2.7"}}),
    ],
)
def test_behind_cloudfront_a_capability_looks_at_the_viewers_address(
    agent: Agent, invoke: Invoke, name: str, authorizer: dict[str, Any]
) -> None:
    """API Gateway sees an address of CloudFront there."""
    invoke("connect")
    token = issue(
        owner_seed(OWNER), subject=public_key(ALICE), capability="relay:events:write",
        caveats={"ip": "192.0.2.0/24"},
    )  # fmt: skip

    def publish(content: str, named: object) -> str:
        event = as_body(signed(content=content))
        body = {"type": "publish", "event": event, "capability": [token]}
        sent = post(name, body)
        sent["requestContext"]["authorizer"] = named
        response = invoke(name, sent)
        frames = connections_of(agent).take_frames(CONNECTION)
        return str(response["body"] if "body" in response else frames[-1])

    assert "accepted" in json.loads(publish("1", authorizer))["message"]
    for nobody in (None, {}, {"viewer": ""}, {"lambda": {"viewer": ""}}):
        assert json.loads(publish("2", nobody))["error"] == "capability_refused"
