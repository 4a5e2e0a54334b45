"""The operator's console and the relay management API (NIP-86), as API Gateway calls them."""

import json
from dataclasses import replace
from typing import Any

import pytest

from farthing.btp_nips.messages import Model
from farthing.context import Agent
from farthing.handlers import runtime
from farthing.nostr.events import public_key_of
from farthing.nostr.filters import Filter
from farthing.ports.figures import Report, Watched
from farthing.relay.price import price_of
from farthing.store.ledger import Peer, hash_token
from farthing.store.outbox import Delivery, DeliveryState
from tests.functions.conftest import Invoke, sample
from tests.ilp.paying import PAYER
from tests.purses.test_purse_http import nostr
from tests.relay.world import ALICE, BOB, OWNER, Clock, signed
from tests.subscriptions.world import Subscriber, store

HOST = "relay.example"
ALICE_KEY = public_key_of(ALICE)


@pytest.fixture
def site(agent: Agent) -> Agent:
    """The agent that handlers find, at its public address."""
    known = replace(agent, settings=replace(agent.settings, relay_url=f"wss://{HOST}"))
    runtime.install(known)
    return known


def subscribe(site: Agent) -> None:
    """With 500 left."""
    site.ledger.add_peer(PAYER)
    Subscriber(site, ALICE).subscribe(1500, model=Model.STREAMING)


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

    def test_only_the_owner_may_manage(self, owner: Owner) -> None:
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
        event["headers"]["content-type"] = "Application/Nostr+JSON+RPC"  # case means nothing
        assert invoke("manage", event)["statusCode"] == 401

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

    def test_shows_broadcasts_and_paid_subscriptions(self, site: Agent, owner: Owner) -> None:
        event = signed(ALICE)
        places = [Delivery(event.id, f"wss://{name}.example", "", site.now) for name in "abc"]
        site.outbox.add(event.id, places, site.now)
        site.outbox.finish(places[0], DeliveryState.FAILED, "no")
        subscribe(site)

        shown = result(owner.console())

        assert shown["broadcasts"] == [
            {
                "id": event.id,
                "time": site.now,
                "spent": "0",
                "states": {"due": 2, "failed": 1},
                "last_failure": "no",
            }
        ]
        (subscription,) = shown["subscriptions"]
        assert subscription["owner"] == f"key:{ALICE_KEY}"
        assert (subscription["id"], subscription["credit"]) == ("s1", "500")

    def test_closing_a_subscription_returns_its_credit(self, site: Agent, owner: Owner) -> None:
        subscribe(site)
        action = {"action": "close", "owner": f"key:{ALICE_KEY}", "id": "s1"}

        assert result(owner.console(action))["credit"] == "500"

        assert site.purses.get(ALICE_KEY).left == 500
        assert owner.console(action)["statusCode"] == 409
        assert owner.console({**action, "id": "nosuch"})["statusCode"] == 404

    def test_newest_events_are_read_again_only_when_minutes_have_passed(
        self, site: Agent, owner: Owner
    ) -> None:
        """A console that is left open costs little."""
        clock = site.clock
        assert isinstance(clock, Clock)
        store(site, signed(ALICE, content="one"))
        assert result(owner.console())["events"]["recent"][0]["events"] == 1
        store(site, signed(ALICE, content="two"))

        soon = result(owner.console())["events"]
        clock.now += site.settings.figures_seconds
        later = result(owner.console())["events"]

        assert (soon["numbered"], soon["recent"][0]["events"]) == (2, 1)
        assert (later["numbered"], later["recent"][0]["events"]) == (2, 2)

    def test_shows_what_others_count(self, site: Agent, owner: Owner) -> None:
        assert "figures" not in result(owner.console())
        seen: list[Watched] = []

        class Counted:
            def read(self, watched: Watched, now: int) -> Report:
                seen.append(watched)
                return Report("elsewhere", 24, now, {"Messages": 7}, given_up={"x-failures": 1})

        runtime.install(replace(site, figures=Counted()))

        shown = result(owner.console())["figures"]

        assert (shown["source"], shown["counts"]) == ("elsewhere", {"Messages": 7})
        assert shown["given_up"] == {"x-failures": 1}
        assert {"ilp", "req"} <= set(seen[0].functions)
        assert "sequencer-failures" in seen[0].failures and "deliveries" in seen[0].queues

    def test_is_for_the_owner_alone(self, owner: Owner, invoke: Invoke) -> None:
        assert owner.console(secret=ALICE)["statusCode"] == 403
        assert invoke("operator")["statusCode"] == 401

    def test_set_peer_changes_only_the_given_fields(self, site: Agent, owner: Owner) -> None:
        site.ledger.add_peer(Peer("bob", hash_token("t")))

        result(owner.console({"action": "set_peer", "id": "bob", "max_balance": "0"}))
        result(owner.console({"action": "set_peer", "id": "bob", "active": False}))

        peer = site.ledger.peer("bob")
        assert peer is not None
        assert (peer.max_balance, peer.active) == (0, False)

    def test_a_purse_is_granted_money_and_frozen(self, site: Agent, owner: Owner) -> None:
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
            ({"action": {"close": 1}}, 400),
            ({"action": "close", "owner": "x" * 3000, "id": "s1"}, 404),
            ({"action": "close", "owner": f"key:{ALICE_KEY}", "id": "x" * 3000}, 404),
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


def test_the_console_shows_the_text_of_a_reported_event(site: Agent, owner: Owner) -> None:
    bad = signed(ALICE, content="x" * 1000)
    report = signed(BOB, kind=1984, content="look", tags=[["e", bad.id]])
    store(site, bad, report)

    found = result(owner.console())["moderation"]

    assert found["waiting"] == 1
    assert found["reported"] == [
        {"id": bad.id, "reason": "look", "pubkey": ALICE_KEY, "kind": 1, "content": "x" * 500}
    ]
