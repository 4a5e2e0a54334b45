"""Each handler with its sample payload: what it answers, and what it does."""

import json
from dataclasses import replace
from typing import Any

import pytest

from farthing.context import Agent
from farthing.handlers import runtime
from farthing.nostr.filters import Filter
from farthing.store.subscriptions import Subscription
from tests.functions.conftest import SAMPLES, Invoke, sample
from tests.relay.world import START, connections_of

CONNECTION = sample("connect")["requestContext"]["connectionId"]
CHALLENGE = "0123456789abcdef0123456789abcdef"
DONE = {"statusCode": 200}


def body(response: dict[str, Any]) -> Any:
    assert response["statusCode"] == 200
    return json.loads(response["body"])


def published(name: str) -> dict[str, Any]:
    return json.loads(sample(name)["body"])[1]


def read_along(agent: Agent, connection_id: str = "reader") -> None:
    subscription = Subscription(connection_id, "all", 0, [Filter()])
    agent.subscriptions.subscribe(subscription, agent.now)


def test_every_function_has_a_sample() -> None:
    functions = SAMPLES.parent / "functions"
    assert {path.stem for path in SAMPLES.glob("*.json")} == {
        path.parent.name for path in functions.glob("*/handler.py")
    }


class TestSockets:
    @pytest.fixture(autouse=True)
    def connected(self, agent: Agent) -> None:
        host = sample("connect")["requestContext"]["domainName"]
        agent.sessions.connect(CONNECTION, CHALLENGE, host, agent.now)

    def test_connect_stores_the_connection_with_a_challenge(
        self, agent: Agent, invoke: Invoke
    ) -> None:
        assert invoke("connect") == DONE

        connection = agent.sessions.get(CONNECTION)
        assert connection.host == sample("connect")["requestContext"]["domainName"]
        assert connection.challenge not in ("", CHALLENGE)
        assert connections_of(agent).posted == []  # from inside $connect nothing can be posted

    def test_event_stores_the_event_and_sends_the_challenge(
        self, agent: Agent, invoke: Invoke
    ) -> None:
        note = published("event")

        assert body(invoke("event")) == ["OK", note["id"], True, ""]

        assert json.loads(agent.events.get(note["id"]).json) == note
        assert connections_of(agent).posted == [(CONNECTION, ["AUTH", CHALLENGE])]

    def test_req_sends_stored_events_and_stays_open(self, agent: Agent, invoke: Invoke) -> None:
        invoke("event")
        connections_of(agent).take(CONNECTION)

        assert body(invoke("req")) == ["EOSE", "feed"]

        ((kind, id, note),) = connections_of(agent).take(CONNECTION)
        assert (kind, id, note) == ("EVENT", "feed", published("event"))
        assert agent.subscriptions.ids(CONNECTION) == {"feed"}

    def test_count_answers_the_number(self, invoke: Invoke) -> None:
        invoke("event")

        assert body(invoke("count")) == ["COUNT", "how many", {"count": 1}]

    def test_auth_stores_the_proven_key(self, agent: Agent, invoke: Invoke) -> None:
        event = published("auth")

        assert body(invoke("auth")) == ["OK", event["id"], True, ""]
        assert agent.sessions.get(CONNECTION).pubkeys == {event["pubkey"]}

    def test_close_ends_the_subscription(self, agent: Agent, invoke: Invoke) -> None:
        invoke("req")

        assert invoke("close") == DONE
        assert agent.subscriptions.ids(CONNECTION) == set()

    def test_a_req_after_its_close_stays_closed(self, agent: Agent, invoke: Invoke) -> None:
        invoke("close")

        assert invoke("req") == DONE
        assert agent.subscriptions.ids(CONNECTION) == set()

    def test_disconnect_forgets_connection_and_subscriptions(
        self, agent: Agent, invoke: Invoke
    ) -> None:
        invoke("req")

        assert invoke("disconnect") == DONE
        assert agent.sessions.get(CONNECTION) is None
        assert agent.subscriptions.ids(CONNECTION) == set()

    def test_a_message_without_a_route_is_served_by_default(
        self, agent: Agent, invoke: Invoke
    ) -> None:
        profile = published("default")

        assert body(invoke("default")) == ["OK", profile["id"], True, ""]
        assert agent.events.get(profile["id"]) is not None

    @pytest.mark.parametrize("name", ["event", "req", "count", "auth"])
    def test_default_serves_every_verb(self, agent: Agent, invoke: Invoke, name: str) -> None:
        assert body(invoke("default", sample(name)))[0] in ("OK", "EOSE", "COUNT")

    @pytest.mark.parametrize("name", ["event", "req", "count", "auth", "close", "default"])
    def test_a_message_without_a_body(self, invoke: Invoke, name: str) -> None:
        empty = {**sample(name), "body": None}

        assert body(invoke(name, empty)) == ["NOTICE", "invalid: expected JSON"]

    def test_a_message_on_another_route(self, invoke: Invoke) -> None:
        assert body(invoke("req", sample("event")))[0] == "OK"


class TestFanOut:
    def test_new_events_reach_their_readers(self, agent: Agent, invoke: Invoke) -> None:
        read_along(agent)

        assert invoke("fanout") == {"batchItemFailures": []}

        # The note and the new profile; not addresses, what was replaced, or a tombstone.
        ids = [frame[2]["id"] for _, frame in connections_of(agent).posted]
        assert ids == [published("event")["id"], published("default")["id"]]

    def test_an_event_in_place_of_a_strangers_tombstone_is_new(self, agent, invoke) -> None:
        read_along(agent)
        (record, *_) = sample("fanout")["Records"]
        record["eventName"] = "MODIFY"
        record["dynamodb"]["OldImage"] = {"by": {"L": [{"S": "a" * 64}]}}

        invoke("fanout", {"Records": [record]})

        assert len(connections_of(agent).posted) == 1

    def test_one_that_was_there_already_is_not(self, agent: Agent, invoke: Invoke) -> None:
        read_along(agent)
        (record, *_) = sample("fanout")["Records"]
        record["eventName"] = "MODIFY"
        record["dynamodb"]["OldImage"] = record["dynamodb"]["NewImage"]

        invoke("fanout", {"Records": [record]})

        assert connections_of(agent).posted == []

    def test_a_bad_record_is_reported_and_those_before_it_are_not(self, agent, invoke) -> None:
        read_along(agent)
        event = sample("fanout")
        broken = event["Records"][2]
        broken["dynamodb"]["NewImage"]["j"] = {"S": "not json"}

        response = invoke("fanout", event)

        sequence = broken["dynamodb"]["SequenceNumber"]
        assert response == {"batchItemFailures": [{"itemIdentifier": sequence}]}
        ids = {frame[2]["id"] for _, frame in connections_of(agent).posted}
        assert ids == {published("event")["id"]}

    def test_what_cannot_be_posted_is_tried_again(self, agent: Agent, invoke: Invoke) -> None:
        read_along(agent)
        connections_of(agent).error = RuntimeError("gateway down")

        with pytest.raises(RuntimeError, match="gateway down"):  # Lambda sends them all again
            invoke("fanout")

    def test_an_empty_batch_has_no_failures(self, invoke: Invoke) -> None:
        assert invoke("fanout", {"Records": []}) == {"batchItemFailures": []}


def unmatched(method: str, path: str) -> dict[str, Any]:
    """A request for which API Gateway has found no route but `$default`."""
    event = sample("info")
    event["routeKey"] = event["requestContext"]["routeKey"] = "$default"
    event["rawPath"] = event["requestContext"]["http"]["path"] = path
    event["requestContext"]["http"]["method"] = method
    return event


class TestInfo:
    def test_the_information_document_has_our_key_nips_and_limits(
        self, agent: Agent, invoke: Invoke
    ) -> None:
        response = invoke("info")

        assert response["headers"]["Content-Type"] == "application/nostr+json"
        assert response["headers"]["Access-Control-Allow-Origin"] == "*"
        assert response["headers"]["Vary"] == "Accept"
        document = body(response)
        assert document["pubkey"] == agent.settings.pubkey
        assert {1, 9, 11, 40, 42, 45, 70} <= set(document["supported_nips"])
        limits = document["limitation"]
        assert limits["max_message_length"] == agent.settings.max_message_length
        assert limits["max_subid_length"] == 64
        assert limits["payment_required"] is False
        assert "" not in document.values()

    def test_the_changes_feed_is_named_for_strict_clients_too(
        self, agent: Agent, invoke: Invoke
    ) -> None:
        document = body(invoke("info"))
        assert document["supported_nips"][-1] == "CF"
        assert document["changes_feed"] is True

        strict = replace(agent, settings=replace(agent.settings, list_changes_feed=False))
        runtime.install(strict)
        document = body(invoke("info"))
        assert all(type(nip) is int for nip in document["supported_nips"])
        assert document["changes_feed"] is True

    def test_a_browser_gets_a_page(self, invoke: Invoke) -> None:
        event = sample("info")
        event["headers"]["accept"] = "text/html"

        response = invoke("info", event)

        assert response["statusCode"] == 200
        assert response["headers"]["Content-Type"].startswith("text/")

    @pytest.mark.parametrize("path", ["/", "/ilp", "/v1/events", "/accounts/x/settlements"])
    def test_a_preflight_names_the_headers_of_a_payment(self, invoke: Invoke, path: str) -> None:
        response = invoke("info", unmatched("OPTIONS", path))

        assert response["statusCode"] == 204
        named = response["headers"]["Access-Control-Allow-Headers"]
        assert {"Authorization", "Content-Type", "Idempotency-Key", "Prefer", "Request-Id"} <= set(
            named.split(", ")
        )

    @pytest.mark.parametrize(
        ("method", "path", "allow"),
        [
            ("DELETE", "/ilp", "OPTIONS, POST"),
            ("PUT", "/v1/events", "OPTIONS, POST"),
            ("PUT", "/", "GET, HEAD, OPTIONS, POST"),
            ("GET", "/accounts/x/settlements", "OPTIONS, POST"),
        ],
    )
    def test_a_wrong_method_is_405_with_allow(
        self, invoke: Invoke, method: str, path: str, allow: str
    ) -> None:
        response = invoke("info", unmatched(method, path))

        assert response["statusCode"] == 405
        assert response["headers"]["Allow"] == allow
        assert response["headers"]["Access-Control-Allow-Origin"] == "*"

    @pytest.mark.parametrize("method", ["GET", "OPTIONS", "POST"])
    def test_an_unknown_path_is_404(self, invoke: Invoke, method: str) -> None:
        response = invoke("info", unmatched(method, "/accounts//settlements"))

        assert response["statusCode"] == 404
        assert json.loads(response["body"])["status"] == 404

    def test_the_health_check_answers_ok(self, invoke: Invoke) -> None:
        event = sample("info")
        event["rawPath"] = "/healthz"

        assert body(invoke("info", event)) == {"status": "ok"}


def test_the_samples_are_of_the_moment_that_the_clock_shows() -> None:
    assert sample("event")["requestContext"]["requestTimeEpoch"] // 1000 - START < 60


def test_without_an_agent_the_environment_makes_one(moto_tables, monkeypatch) -> None:
    monkeypatch.setenv("FARTHING_SECRET_KEY", "1" * 64)
    monkeypatch.setenv("FARTHING_TABLE_PREFIX", "x-")
    monkeypatch.setenv("FARTHING_CONNECTIONS_URL", "https://example.com/relay")
    runtime.install(None)
    try:
        agent = runtime.agent()
        assert agent.settings.secret_key == "1" * 64
        assert runtime.agent() is agent
    finally:
        runtime.install(None)
