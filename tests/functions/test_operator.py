"""The operator's console and the relay management API (NIP-86), as API Gateway calls them."""

import json
from dataclasses import replace
from typing import Any

import pytest

from farthing.context import Agent
from farthing.handlers import runtime
from farthing.nostr.events import public_key_of
from farthing.nostr.filters import Filter
from farthing.relay.price import price_of
from farthing.store.ledger import Peer, hash_token
from farthing.store.outbox import Delivery, State
from tests.functions.conftest import Invoke, sample
from tests.purses.test_purse_http import nostr
from tests.relay.world import ALICE, BOB, OWNER, signed

HOST = "relay.example"
ALICE_KEY = public_key_of(ALICE)


@pytest.fixture
def site(agent: Agent) -> Agent:
    """The agent that handlers find, at its public address."""
    known = replace(agent, settings=replace(agent.settings, relay_url=f"wss://{HOST}"))
    runtime.install(known)
    return known


class Owner:
    """Sends what the owner signs, or somebody else."""

    def __init__(self, agent: Agent, invoke: Invoke) -> None:
        self._agent = agent
        self._invoke = invoke

    def manage(
        self, method: str, *params: object, secret: bytes = OWNER, url: str = f"https://{HOST}/"
    ) -> dict[str, Any]:
        body = json.dumps({"method": method, "params": params})
        proof = nostr(self._agent, secret, "POST", url, body)
        return self._send("manage", "POST", body, proof)

    def console(
        self, action: dict[str, Any] | None = None, secret: bytes = OWNER
    ) -> dict[str, Any]:
        method, body = ("GET", "") if action is None else ("POST", json.dumps(action))
        proof = nostr(self._agent, secret, method, f"https://{HOST}/v1/operator", body)
        return self._send("operator", method, body, proof)

    def _send(self, function: str, method: str, body: str, proof: str) -> dict[str, Any]:
        event = sample(function)
        event["requestContext"]["http"]["method"] = method
        event["headers"]["authorization"] = proof
        event["body"] = body
        return self._invoke(function, event)


@pytest.fixture
def owner(site: Agent, invoke: Invoke) -> Owner:
    return Owner(site, invoke)


def result(response: dict[str, Any]) -> Any:
    assert response["statusCode"] == 200, response
    return json.loads(response["body"])


class TestManagement:
    def test_the_owner_bans_a_key(self, site: Agent, owner: Owner) -> None:
        site.events.save(signed(ALICE, content="spam"))

        answer = result(owner.manage("banpubkey", ALICE_KEY, "spam"))

        assert answer == {"result": True}
        assert list(site.reader.find(Filter(authors=frozenset({ALICE_KEY})))) == []
        assert result(owner.manage("listbannedpubkeys"))["result"] == [
            {"pubkey": ALICE_KEY, "reason": "spam"}
        ]

    @pytest.mark.parametrize("url", [f"https://{HOST}", f"wss://{HOST}", f"wss://{HOST}/"])
    def test_the_relays_url_is_signed_in_every_common_form(self, owner: Owner, url: str) -> None:
        assert "banpubkey" in result(owner.manage("supportedmethods", url=url))["result"]

    def test_nobody_else_may(self, owner: Owner) -> None:
        assert owner.manage("banpubkey", ALICE_KEY, secret=BOB)["statusCode"] == 403
        assert result(owner.manage("listbannedpubkeys"))["result"] == []

    def test_a_request_for_another_place_or_without_a_signature_is_refused(
        self, owner: Owner, invoke: Invoke
    ) -> None:
        assert owner.manage("supportedmethods", url="https://other.example/")["statusCode"] == 401
        assert invoke("manage")["statusCode"] == 401

    def test_a_wrong_call_is_told_in_the_answer(self, owner: Owner) -> None:
        answer = result(owner.manage("banpubkey", "nobody"))
        assert answer["result"] is None
        assert "expected a public key" in answer["error"]

    def test_only_the_media_type_of_the_api_is_taken(self, owner: Owner, invoke: Invoke) -> None:
        event = sample("manage")
        event["headers"]["content-type"] = "application/json"
        assert invoke("manage", event)["statusCode"] == 415

    def test_a_new_name_stands_in_the_information_document(
        self, owner: Owner, invoke: Invoke
    ) -> None:
        result(owner.manage("changerelayname", "Groat"))

        document = json.loads(invoke("info")["body"])

        assert document["name"] == "Groat"

    def test_an_allowed_key_pays_nothing(self, site: Agent, owner: Owner) -> None:
        paid = replace(site, settings=replace(site.settings, price_per_byte=10))
        note = signed(ALICE)
        assert price_of(paid, note) > 0
        result(owner.manage("allowpubkey", ALICE_KEY))
        assert price_of(paid, note) == 0


class TestConsole:
    def test_shows_the_owner_what_there_is(self, site: Agent, owner: Owner) -> None:
        site.events.save(signed(ALICE, content="one"))
        site.ledger.add_peer(Peer("bob", hash_token("t"), max_balance=5))
        site.purses.grant(ALICE_KEY, 100, site.now_ms, "a mark")

        shown = result(owner.console())

        assert [row["kind"] for row in shown["events"]["recent"]] == [1]
        assert [(peer["id"], peer["max_balance"]) for peer in shown["peers"]] == [("bob", "5")]
        assert [(each["key"], each["left"]) for each in shown["purses"]] == [(ALICE_KEY, "100")]

    def test_counts_broadcasts_and_paid_subscriptions_by_state(
        self, site: Agent, owner: Owner
    ) -> None:
        assert result(owner.console())["work"] == []
        event = signed(ALICE)
        places = [Delivery(event.id, f"wss://{name}.example", "", site.now) for name in "abc"]
        site.outbox.add(event.id, places, site.now)
        site.outbox.finish(places[0], State.FAILED, "no")

        shown = result(owner.console())["work"]

        assert shown == [{"what": "newest 1 broadcasts", "state": "2 due, 1 failed"}]

    def test_is_for_the_owner_alone(self, owner: Owner, invoke: Invoke) -> None:
        assert owner.console(secret=ALICE)["statusCode"] == 403
        assert invoke("operator")["statusCode"] == 401

    def test_changes_a_peer(self, site: Agent, owner: Owner) -> None:
        site.ledger.add_peer(Peer("bob", hash_token("t")))

        result(owner.console({"action": "set_peer", "id": "bob", "max_balance": "0"}))
        result(owner.console({"action": "set_peer", "id": "bob", "active": False}))

        peer = site.ledger.peer("bob")
        assert peer is not None
        assert (peer.max_balance, peer.active) == (0, False)

    def test_grants_and_freezes(self, site: Agent, owner: Owner) -> None:
        grant = {"action": "grant", "key": ALICE_KEY, "amount": "70", "mark": "one-grant"}
        result(owner.console(grant))
        result(owner.console({"action": "freeze", "key": ALICE_KEY}))

        purse = site.purses.get(ALICE_KEY)
        assert (purse.granted, purse.is_frozen, purse.drawable) == (70, True, 0)

    @pytest.mark.parametrize(
        ("action", "status"),
        [
            ({}, 400),
            ({"action": "nosuch"}, 400),
            ({"action": "set_peer", "id": "nobody"}, 404),
            ({"action": "grant", "key": "x", "amount": "1", "mark": "12345678"}, 400),
            ({"action": "grant", "key": ALICE_KEY, "amount": "-1", "mark": "12345678"}, 400),
            ({"action": "grant", "key": ALICE_KEY, "amount": 5, "mark": "12345678"}, 400),
            ({"action": "grant", "key": ALICE_KEY, "amount": "5"}, 400),
            ({"action": "freeze", "key": ALICE_KEY, "frozen": "yes"}, 400),
        ],
    )
    def test_refuses_what_makes_no_sense(
        self, owner: Owner, action: dict[str, Any], status: int
    ) -> None:
        assert owner.console(action)["statusCode"] == status
