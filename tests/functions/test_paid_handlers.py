"""The handlers of paid writes with their sample payloads."""

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from farthing.aws.outbound import LambdaOutbound
from farthing.connector.purse_accounts import offer_of
from farthing.context import Agent
from farthing.handlers import runtime
from farthing.ilp.packet import Fulfill, Prepare, Reject, decode_prepare, decode_reply, encode
from farthing.ports.hosts import ANYWHERE
from farthing.ports.meter import Metric
from farthing.ports.outbound import Response
from farthing.relay import publish
from farthing.store.ledger import Hold
from tests.functions.conftest import Invoke, sample
from tests.ilp.paying import PAYER, PER_BYTE, assert_fulfilled, posted
from tests.relay.world import OWNER, START, Client, counts_of, signed

PROBLEM = "application/problem+json"


@pytest.fixture
def paid(agent: Agent) -> Iterator[Agent]:
    """The agent that handlers find has its price, and the sample's payer for a peer."""
    paid = replace(agent, settings=replace(agent.settings, price_per_byte=PER_BYTE))
    paid.ledger.add_peer(PAYER)
    runtime.install(paid)
    return paid


def sample_packet() -> Prepare:
    return decode_prepare(base64.b64decode(sample("ilp")["body"]))


def sample_event() -> dict[str, Any]:
    return json.loads(sample("events")["body"])


def reply_of(response: dict[str, Any]) -> Fulfill | Reject:
    assert response["statusCode"] == 200
    assert response["isBase64Encoded"] is True
    assert response["headers"]["Content-Type"] == "application/octet-stream"
    return decode_reply(base64.b64decode(response["body"]))


def problem_of(response: dict[str, Any]) -> dict[str, Any]:
    assert response["headers"]["Content-Type"] == PROBLEM
    body: dict[str, Any] = json.loads(response["body"])
    assert body["status"] == response["statusCode"]
    return body


def with_headers(name: str, **headers: str | None) -> dict[str, Any]:
    event = sample(name)
    given = {**event["headers"], **{k.replace("_", "-"): v for k, v in headers.items()}}
    return {**event, "headers": {name: value for name, value in given.items() if value is not None}}


def with_body(name: str, body: object) -> dict[str, Any]:
    return {**sample(name), "body": body, "isBase64Encoded": False}


class TestIlp:
    def test_a_packet_that_pays_stores_its_event(self, paid: Agent, invoke: Invoke) -> None:
        assert_fulfilled(reply_of(invoke("ilp")), sample_packet())
        assert paid.events.get(sample_event()["id"]) is not None
        assert posted(paid) == sample_packet().amount

    def test_a_packet_that_does_not(self, paid: Agent, invoke: Invoke) -> None:
        poor = encode(replace(sample_packet(), amount=1))
        event = {**sample("ilp"), "body": base64.b64encode(poor).decode()}
        assert reply_of(invoke("ilp", event)).code == "F04"  # type: ignore[union-attr]
        assert paid.events.get(sample_event()["id"]) is None

    @pytest.mark.parametrize(
        ("status", "changes"),
        [
            (401, {"authorization": None}),
            (401, {"authorization": "Bearer nobody"}),
            (400, {"content_type": "text/plain"}),
            (400, {"prefer": "respond-async"}),
            (400, {"request_id": "r", "callback_url": "http://169.254.169.254/"}),
        ],
    )
    def test_a_request_that_carries_no_packet_gets_an_http_error(
        self, paid: Agent, invoke: Invoke, status: int, changes: dict[str, Any]
    ) -> None:
        response = invoke("ilp", with_headers("ilp", **changes))
        assert problem_of(response)["status"] == status
        assert posted(paid) == 0

    def test_a_body_that_is_too_large(self, paid: Agent, invoke: Invoke) -> None:
        large = {**sample("ilp"), "body": base64.b64encode(bytes(40_000)).decode()}
        assert problem_of(invoke("ilp", large))["status"] == 413

    @pytest.mark.parametrize("body", [None, "", "not base64!", "AAAA"])
    def test_a_body_that_is_no_packet(self, paid: Agent, invoke: Invoke, body: str | None) -> None:
        reply = reply_of(invoke("ilp", {**sample("ilp"), "body": body}))
        assert reply.code == "F01"  # type: ignore[union-attr]

    def test_a_request_without_headers_gets_400(self, paid: Agent, invoke: Invoke) -> None:
        assert problem_of(invoke("ilp", {**sample("ilp"), "headers": None}))["status"] == 400


class LambdaApi:
    """Takes calls that nobody waits for."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.fails = False

    def invoke(self, *, FunctionName: str, InvocationType: str, Payload: str) -> None:
        if self.fails:
            raise ConnectionError
        assert (FunctionName, InvocationType) == ("farthing-ilp", "Event")
        self.events.append(json.loads(Payload))


class TestCallbacks:
    @pytest.fixture
    def api(self) -> LambdaApi:
        return LambdaApi()

    @pytest.fixture
    def sent(self, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, bytes]]:
        sent: list[tuple[str, str, bytes]] = []

        def post(_: object, url: str, headers: Any, body: bytes, timeout: float) -> Response:
            sent.append((url, headers["Request-Id"], body))
            return Response(202, b"")

        monkeypatch.setattr(LambdaOutbound, "post", post)
        return sent

    @pytest.fixture
    def asked(self, paid: Agent, api: LambdaApi) -> dict[str, Any]:
        """A request for a reply by callback, of a peer that may ask for one."""
        outbound = LambdaOutbound(ANYWHERE, lambda: api, "farthing-ilp")
        runtime.install(replace(paid, outbound=outbound))
        paid.ledger.remove_peer(PAYER.id)
        paid.ledger.add_peer(replace(PAYER, endpoint="https://payer.example/ilp"))
        return with_headers("ilp", request_id="r", callback_url="https://payer.example/back")

    def test_a_reply_goes_out_in_a_call_of_its_own(
        self, paid: Agent, invoke: Invoke, asked: dict[str, Any], api: LambdaApi, sent: list[Any]
    ) -> None:
        assert invoke("ilp", asked)["statusCode"] == 202
        assert sent == [], "the peer does not know yet that we took its request"
        (event,) = api.events
        assert invoke("ilp", event) == {}
        ((url, request_id, body),) = sent
        assert (url, request_id) == ("https://payer.example/back", "r")
        assert_fulfilled(decode_reply(body), sample_packet())
        assert posted(paid) == sample_packet().amount

    def test_a_reply_that_cannot_be_handed_over_goes_out_at_once(
        self, invoke: Invoke, asked: dict[str, Any], api: LambdaApi, sent: list[Any]
    ) -> None:
        api.fails = True
        assert invoke("ilp", asked)["statusCode"] == 202
        assert [request_id for _, request_id, _ in sent] == ["r"]

    def test_nobody_has_one_sent_from_outside(
        self, invoke: Invoke, asked: dict[str, Any], sent: list[Any]
    ) -> None:
        callback = {"url": "https://x.example", "headers": {}, "body": "", "seconds": 1}
        body = json.dumps({"callback": callback})
        invoke("ilp", {**asked, "body": body, "isBase64Encoded": False})
        assert sent == []


class TestQuotes:
    def test_the_price_of_an_event(self, paid: Agent, invoke: Invoke) -> None:
        response = invoke("quotes")
        assert response["statusCode"] == 200
        quote = json.loads(response["body"])
        assert quote == {
            "price": str(sample_packet().amount),
            "asset_code": "USD",
            "asset_scale": 9,
            "kind": 1,
            "size": len(sample_packet().data),
            "destination": paid.settings.own_ilp_address,
            "endpoint": paid.settings.ilp_url,
            "pubkey": paid.settings.pubkey,
            "expires_at": "2023-11-14T22:18:20Z",
            "event_id": sample_event()["id"],
            "condition": quote["condition"],
            "purse": offer_of(paid.settings, sample_event()["pubkey"]),
        }
        # What was quoted is fulfilled, whoever pays.
        condition = bytes.fromhex(quote["condition"])
        prepare = replace(sample_packet(), condition=condition, amount=int(quote["price"]))
        event = {**sample("ilp"), "body": base64.b64encode(encode(prepare)).decode()}
        assert_fulfilled(reply_of(invoke("ilp", event)), prepare)

    def test_the_price_of_a_kind_and_a_size(self, paid: Agent, invoke: Invoke) -> None:
        response = invoke("quotes", with_body("quotes", '{"kind": 1, "size": 100}'))
        quote = json.loads(response["body"])
        assert (quote["price"], quote["kind"], quote["size"]) == ("1000", 1, 100)
        assert "condition" not in quote

    @pytest.mark.parametrize(
        "body",
        [
            None, "", "[]", "null", "{", '{"event": 1}', '{"event": {}}', '{"kind": 1}',
            '{"kind": -1, "size": 1}', '{"kind": 1, "size": "1"}', '{"kind": true, "size": 1}',
            "[" * 100_000, '{"kind": 1, "size": 1e3}', "\ud800",
        ],
    )  # fmt: skip
    def test_a_wrong_question_gets_400(self, paid: Agent, invoke: Invoke, body: str | None) -> None:
        assert problem_of(invoke("quotes", with_body("quotes", body)))["status"] == 400

    def test_an_event_with_another_signature(self, paid: Agent, invoke: Invoke) -> None:
        forged = {"event": {**sample_event(), "content": "forged"}}
        response = invoke("quotes", with_body("quotes", json.dumps(forged)))
        assert problem_of(response)["status"] == 400

    def test_an_event_that_fits_no_packet(self, paid: Agent, invoke: Invoke) -> None:
        """Only a purse can pay for it, so nobody is told to send a packet."""
        large = signed(content="x" * 40_000)
        quoted = with_body("quotes", json.dumps({"event": large.as_dict()}))
        quote = json.loads(invoke("quotes", quoted)["body"])
        problem = problem_of(invoke("events", with_body("events", json.dumps(large.as_dict()))))
        assert problem["status"] == 402
        for offer in (quote, problem):
            assert offer["price"] == "403250"
            assert not {"condition", "destination"} & set(offer)
            assert offer["purse"]["key"] == large.pubkey
        assert "this costs 403250 " in Client(paid).publish(large)[3]


@pytest.mark.parametrize("name", ["quotes", "events", "settlements"])
def test_a_body_over_the_length_of_a_message(paid: Agent, invoke: Invoke, name: str) -> None:
    """What cannot come by WebSocket, and could not go out by it, does not come by HTTP either."""
    runtime.install(replace(paid, settings=replace(paid.settings, settlement_token="secret")))
    large = {**with_headers(name, authorization="Bearer secret"), "isBase64Encoded": False}
    most = paid.settings.max_message_length
    assert invoke(name, {**large, "body": "x" * most})["statusCode"] == 400
    response = invoke(name, {**large, "body": "x" * (most + 1)})
    assert problem_of(response)["status"] == 413


class TestEvents:
    def test_a_strangers_event_has_its_price(self, paid: Agent, invoke: Invoke) -> None:
        response = invoke("events")
        assert response["statusCode"] == 402
        problem = problem_of(response)
        quote = json.loads(invoke("quotes")["body"])
        assert problem | quote == problem
        assert paid.events.get(sample_event()["id"]) is None

    @pytest.mark.parametrize("changes", [{"kind": 22242}, {"created_at": START + 10_000}])
    def test_a_strangers_event_that_no_payment_would_help(
        self, paid: Agent, invoke: Invoke, changes: dict[str, Any]
    ) -> None:
        refused = signed(**changes)
        response = invoke("events", with_body("events", refused.to_json()))
        assert problem_of(response)["status"] == 400

    def test_the_owners_event_is_stored(self, paid: Agent, invoke: Invoke) -> None:
        mine = signed(OWNER, content="mine")
        response = invoke("events", with_body("events", mine.to_json()))
        assert response["statusCode"] == 200
        answer = json.loads(response["body"])
        assert answer == {
            "id": mine.id, "stored": True, "message": "", "accepted": True, "event_id": mine.id
        }  # fmt: skip
        assert paid.events.get(mine.id) is not None

    def test_an_event_is_stored_where_writing_is_free(self, agent: Agent, invoke: Invoke) -> None:
        assert invoke("events")["statusCode"] == 200
        assert agent.events.get(sample_event()["id"]) is not None

    @pytest.mark.parametrize(
        ("status", "changes"),
        [
            (401, {"tags": [["-"]]}),
            (400, {"tags": [["expiration", str(START)]]}),
            (400, {"kind": 22242}),
        ],
    )
    def test_the_owners_event_may_be_refused(
        self, paid: Agent, invoke: Invoke, status: int, changes: dict[str, Any]
    ) -> None:
        response = invoke("events", with_body("events", signed(OWNER, **changes).to_json()))
        assert problem_of(response)["status"] == status

    @pytest.mark.parametrize("body", [None, "{}", "[]", '{"id": 1}', "x"])
    def test_a_body_without_an_event_gets_400(
        self, paid: Agent, invoke: Invoke, body: str | None
    ) -> None:
        assert problem_of(invoke("events", with_body("events", body)))["status"] == 400

    def test_a_forgery_in_the_owners_name(self, paid: Agent, invoke: Invoke) -> None:
        forged = {**sample_event(), "pubkey": paid.settings.pubkey}
        response = invoke("events", with_body("events", json.dumps(forged)))
        assert problem_of(response)["status"] == 400


def test_policies_are_looked_at_once(
    paid: Agent, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime.install(replace(paid, settings=replace(paid.settings, price_per_byte=0)))
    looked: list[str] = []
    monkeypatch.setattr(publish, "check_policies", lambda _, event: looked.append(event.id))
    assert invoke("events")["statusCode"] == 200
    assert looked == [sample_event()["id"]]


def test_the_sweeper_releases_what_has_expired(paid: Agent, invoke: Invoke) -> None:
    past = Hold(PAYER.id, "0" * 64, 5, START * 1000)
    future = Hold(PAYER.id, "1" * 64, 7, START * 1000 + 1)
    for hold in (past, future):
        assert paid.ledger.hold(hold, 100)
    assert invoke("sweeper")["released"] == 1
    assert list(paid.ledger.holds()) == [future]
    assert invoke("sweeper")["released"] == 0
    assert counts_of(paid)[Metric.REVENUE] == 0  # said, and not merely not said
