"""A key's paid subscriptions by HTTP: who sees them, what is shown, and how one is ended."""

from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest

from farthing.agent.audit import audit
from farthing.btp_nips.identity import key_owner
from farthing.btp_nips.lifecycle import State
from farthing.btp_nips.messages import Closed, Model
from farthing.connector.subscriptions.sweeping import sweep_subscriptions
from farthing.context import Agent
from farthing.handlers import runtime
from tests.purses.test_purse_http import SITE, json_of, nostr, request
from tests.relay.world import BOB, OWNER, Clock
from tests.subscriptions.test_push import Town, town  # noqa: F401
from tests.subscriptions.world import NOTES, SUBSCRIBER, Subscriber, inbox, store_notes


@pytest.fixture
def site(agent: Agent) -> Agent:
    return at_site(agent)


def at_site(agent: Agent) -> Agent:
    site = replace(agent, settings=replace(agent.settings, web_url=SITE), _parts={})
    runtime.install(site)
    return site


@pytest.fixture(autouse=True)
def uninstalled() -> Any:
    yield
    runtime.install(None)


@pytest.fixture
def subscriber(site: Agent) -> Subscriber:
    return Subscriber(site)


def ask(
    site: Agent, method: str, id: str = "", secret: bytes = SUBSCRIBER, **changes: Any
) -> dict[str, Any]:
    """A request about the subscriber's subscriptions, signed by a key."""
    key = Subscriber(site).pubkey
    path, query = f"/v1/purses/{key}/subscriptions", f"id={quote(id, safe='')}" if id else ""
    url = f"{SITE}{path}{'?' if query else ''}{query}"
    proof = nostr(site, secret, method, url, **changes)
    response: dict[str, Any] = request(
        "paid_subscriptions", method, path, key=key, query=query, authorization=proof
    )
    return response


def listed(site: Agent, **given: Any) -> list[dict[str, Any]]:
    response = ask(site, "GET", **given)
    assert response["statusCode"] == 200, response
    rows: list[dict[str, Any]] = json_of(response)["subscriptions"]
    return rows


def test_its_key_sees_model_credit_time_status_and_position(
    site: Agent, subscriber: Subscriber
) -> None:
    store_notes(site, 2)
    subscriber.subscribe(1110, model=Model.STREAMING, pull=2)
    began = site.now

    assert listed(site) == [
        {
            "id": "s1",
            "status": "active",
            "model": "streaming",
            "filters": [NOTES],
            "delivery": "pull",
            "price": "1000",
            "event_fee": "10",
            "credit": "90",
            "spent": "20",
            "events": 2,
            "position": "n:2",
            "began": began,
            "expires_at": began + 3600,
        }
    ]


def test_the_owner_of_the_relay_sees_them_and_nobody_else(
    site: Agent, subscriber: Subscriber
) -> None:
    subscriber.subscribe(1160)

    assert [each["id"] for each in listed(site, secret=OWNER)] == ["s1"]
    assert ask(site, "GET", secret=BOB)["statusCode"] == 403
    unsigned = request("paid_subscriptions", "GET", "/x", key=subscriber.pubkey)
    assert unsigned["statusCode"] == 401
    assert unsigned["headers"]["WWW-Authenticate"] == "Nostr"


def test_open_ones_come_first_and_what_is_over_says_so(
    site: Agent, subscriber: Subscriber, clock: Clock
) -> None:
    subscriber.subscribe(2000, id="short", ttl=60)
    subscriber.subscribe(2000, id="long", ttl=600)
    subscriber.subscribe(2000, id="closed")
    subscriber.close("closed")
    clock.now += 60

    rows = listed(site)

    assert [(each["id"], each["status"]) for each in rows] == [
        ("long", "pending"), ("short", "expired"), ("closed", "closed"),
    ]  # fmt: skip
    assert rows[2]["ending"] == "Subscription closed"
    assert rows[2]["credit"] == "0"


@pytest.mark.parametrize("id", ["\U0010ffff", "\U0010ffff" * 64, "\0", "a#b", "é" * 64, " "])
def test_an_id_of_any_characters_is_shown_counted_and_ended(
    site: Agent, subscriber: Subscriber, id: str
) -> None:
    subscriber.subscribe(1500, id, model=Model.STREAMING)

    assert [each["id"] for each in listed(site)] == [id]
    assert audit(site).differences == []
    assert json_of(ask(site, "DELETE", id))["credit"] == "500"
    assert audit(site).differences == []


@pytest.mark.parametrize("id", ["s1", "a/b?c=d&e f+g%", "€"])
def test_its_key_ends_one_and_the_credit_goes_to_its_purse(
    site: Agent, subscriber: Subscriber, id: str
) -> None:
    subscriber.subscribe(1500, id=id, model=Model.STREAMING)

    for _ in range(2):  # the second as good as the first
        response = ask(site, "DELETE", id)
        assert response["statusCode"] == 200
        assert json_of(response) == {"id": id, "closed": True, "credit": "500"}

    assert site.purses.get(subscriber.pubkey).left == 500
    assert [(each["status"], each["returned"]) for each in listed(site)] == [("closed", "500")]
    assert audit(site).differences == []


def test_the_owner_of_the_relay_ends_one_too(site: Agent, subscriber: Subscriber) -> None:
    subscriber.subscribe(1500, model=Model.STREAMING)

    assert ask(site, "DELETE", "s1", secret=OWNER)["statusCode"] == 200

    assert listed(site)[0]["ending"] == "Subscription closed by the operator"


def test_a_stranger_ends_nothing_nor_learns_what_is_there(
    site: Agent, subscriber: Subscriber
) -> None:
    subscriber.subscribe(1500, model=Model.STREAMING)

    for id in ("s1", "nosuch"):
        assert ask(site, "DELETE", id, secret=BOB)["statusCode"] == 403

    assert listed(site)[0]["status"] == "pending"


def test_what_is_not_there_cannot_be_ended(site: Agent, subscriber: Subscriber) -> None:
    for id in ("nosuch", "x" * 3000):
        assert ask(site, "DELETE", id)["statusCode"] == 404
    assert ask(site, "DELETE")["statusCode"] == 404


def test_a_request_held_back_does_not_end_what_was_subscribed_to_after_it(
    site: Agent, subscriber: Subscriber, clock: Clock
) -> None:
    signed_at = site.now
    clock.now += 5
    subscriber.subscribe(1500, model=Model.STREAMING)

    response = ask(site, "DELETE", "s1", created_at=signed_at)

    assert response["statusCode"] == 409
    assert listed(site)[0]["status"] == "pending"
    assert site.purses.get(subscriber.pubkey).left == 0


def test_a_subscriber_by_push_is_told_of_the_end(town: Town) -> None:  # noqa: F811
    town.relay = at_site(town.relay)
    town.subscriber.agent = town.relay
    town.subscribe()

    response = ask(town.relay, "DELETE", "s1", secret=town.subscriber.secret)
    assert response["statusCode"] == 200, response
    sweep_subscriptions(town.relay)
    town.serve()

    assert isinstance(inbox(town.agent, town.relay)[-1], Closed)
    found = town.relay.paid_subscriptions.get(
        key_owner(town.subscriber.pubkey), "s1", town.relay.now
    )
    assert found is not None and found.state is State.CLOSED and found.is_told
