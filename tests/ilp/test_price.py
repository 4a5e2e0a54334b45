"""One tariff, many mouths: everything that states or charges a price says the same."""

import re
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farthing.agent.identity import publish_identity
from farthing.connector.client import (
    NotPayable,
    RelayTerms,
    prepare_payment,
    terms_from_information,
    terms_from_peer_info,
)
from farthing.connector.quotes import InvalidQuoteRequest, quote_event, quote_size
from farthing.context import Agent
from farthing.ilp.fees import forwarding_fee
from farthing.ilp.packet import Fulfill, Reject
from farthing.ilp.toon import dumps_event
from farthing.nostr.events import Event
from farthing.nostr.nip19 import Npub, encode
from farthing.relay.information import relay_information
from farthing.relay.price import price_of
from farthing.store.memory import MemoryEngine
from tests.ilp.paying import PAYER, assert_fulfilled, note, paid_agent, pay, posted, send
from tests.relay.world import ALICE, OWNER, Client, Clock, signed

KINDS = [0, 1, 3, 5, 7, 1111, 10002, 20001, 30023]
PRICES = st.one_of(st.just(0), st.integers(1, 10), st.integers(0, 10**9))


@st.composite
def tariffs(draw: st.DrawFn) -> dict[str, Any]:
    kinds = draw(st.dictionaries(st.sampled_from(KINDS), PRICES, max_size=4))
    return {
        "price_per_byte": draw(PRICES),
        "price_kinds": {str(kind): price for kind, price in kinds.items()},
        "price_per_tag": draw(PRICES),
        "free_tags": draw(st.integers(0, 20)),
        "asset_code": draw(st.sampled_from(["USD", "XRP", "EUR"])),
        "asset_scale": draw(st.integers(0, 18)),
    }


def naive_price(tariff: dict[str, Any], event: Event) -> int:
    flat = tariff["price_kinds"].get(str(event.kind))
    if flat is not None:
        return flat
    if tariff["price_per_byte"] == 0:
        return 0
    by_size = len(dumps_event(event)) * tariff["price_per_byte"]
    indexed = {(tag[0], tag[1]) for tag in event.tags if len(tag[0]) == 1 and len(tag) > 1}
    return max(by_size, (len(indexed) - tariff["free_tags"]) * tariff["price_per_tag"])


@settings(max_examples=60)
@given(tariffs(), st.sampled_from(KINDS), st.text(max_size=80), st.integers(0, 40))
def test_every_price_is_the_same(
    tariff: dict[str, Any], kind: int, content: str, tags: int
) -> None:
    clock = Clock()
    agent = paid_agent(MemoryEngine(clock=clock), clock, max_balance=10**15, **tariff)
    labels = [["t", f"{number}"] for number in range(tags)]
    event = signed(
        kind=kind, content=content, tags=[*labels, *labels[:3], ["title", "long"], ["x"]]
    )
    price = naive_price(tariff, event)
    asset = {name: tariff[name] for name in ("asset_code", "asset_scale")}

    # stated: kind 10032, the relay information document, quotes, and OK
    (peer_info,) = publish_identity(agent)
    stated = [
        terms_from_peer_info(peer_info),
        terms_from_information(relay_information(agent.settings)),
    ]
    for terms in stated:
        assert terms.tariff.price_event(event, len(dumps_event(event))) == price
    assert len({(t.destination, t.endpoint, t.pubkey) for t in stated}) == 1
    assert {
        "asset_code": stated[0].tariff.asset_code,
        "asset_scale": stated[0].tariff.asset_scale,
    } == asset
    size = len(dumps_event(event))
    for quote in (quote_event(agent, event), quote_size(agent, kind, size, tags)):
        assert quote["price"] == str(price)
        assert quote | asset == quote
    check_information(relay_information(agent.settings), tariff)
    assert price_in_refusal(agent, event) == price

    # asked for: one unit less is refused with the price, the price itself is charged
    if price:
        refusal = pay(agent, event, amount=price - 1)
        assert isinstance(refusal, Reject)
        details = {"price": str(price), "received": str(price - 1), **asset}
        assert orjson.loads(refusal.data) == details
        assert posted(agent) == 0
    assert isinstance(pay(agent, event, amount=price), Fulfill)
    receipts = [(each.price, each.amount) for each in agent.ledger.receipts(PAYER.id)]
    assert receipts == ([(price, price)] if price else [])
    assert posted(agent) == price


def check_information(document: dict[str, Any], tariff: dict[str, Any]) -> None:
    charges = tariff["price_per_byte"] > 0 or any(tariff["price_kinds"].values())
    assert document["limitation"]["payment_required"] is charges
    assert document["limitation"]["restricted_writes"] is charges
    assert ("payments_url" in document) is charges
    assert ("publication" in document["fees"]) is charges
    assert len(document["fees"]["paid_subscription"]) == 4
    if charges:
        flat = {str(fee["kinds"][0]): fee["amount"] for fee in document["fees"]["publication"]}
        assert flat == tariff["price_kinds"]
        assert document["fees"]["publication_per_byte"]["amount"] == tariff["price_per_byte"]
        assert document["payments_url"].endswith("/purse")


def price_in_refusal(agent: Agent, event: Event) -> int:
    if not price_of(agent, event):
        return 0  # it would be stored
    _, _, accepted, reason = Client(agent).publish(event)
    found = re.fullmatch(r"restricted: this costs (\d+) \(.*\); fill your purse at (.*)", reason)
    if accepted or found is None:
        return -1
    assert found[2] == f"{agent.settings.http_url}/purse/{encode(Npub(event.pubkey))}"
    return int(found[1])


def test_a_flat_price_replaces_the_price_by_size(agent_with: Any) -> None:
    agent = agent_with(price_per_byte=10, price_kinds={"1": 5000, "7": 0})
    long = note("x" * 3000)
    assert pay(agent, long, amount=4999).code == "F04"  # type: ignore[union-attr]
    assert isinstance(pay(agent, long, amount=5000), Fulfill)
    assert isinstance(pay(agent, signed(kind=7), amount=0), Fulfill)


def test_what_arrived_is_counted_and_not_what_we_would_have_sent(agent: Agent) -> None:
    """Quotes around a key make another encoding of the same event, and a longer one."""
    event = note()
    longer = dumps_event(event).replace(b"content:", b'"content":')
    price = 10 * len(dumps_event(event))
    assert pay(agent, event, data=longer, amount=price).code == "F04"  # type: ignore[union-attr]
    assert isinstance(pay(agent, event, data=longer, amount=price + 20), Fulfill)


@pytest.mark.parametrize("author", ["owner", "friend"])
def test_free_authors_are_quoted_nothing(agent_with: Any, author: str) -> None:
    secret = OWNER if author == "owner" else ALICE
    event = signed(secret)
    agent = agent_with(free_pubkeys=frozenset({signed(ALICE).pubkey}))
    assert quote_event(agent, event)["price"] == "0"
    assert price_in_refusal(agent, event) == 0
    assert isinstance(pay(agent, event, secret=secret, amount=0), Fulfill)


@pytest.mark.parametrize(
    ("kind", "size"),
    [(None, 1), (1, None), ("1", 1), (-1, 1), (65536, 1), (1, -1), (1, 32768), (True, 1), (1, 1.0)],
)
def test_quotes_for_what_cannot_be(agent: Agent, kind: object, size: object) -> None:
    with pytest.raises(InvalidQuoteRequest):
        quote_size(agent, kind, size)


# Published anew only when something changes


def test_kind_10032_is_published_once_and_again_when_prices_change(agent_with: Any) -> None:
    agent = agent_with(price_per_byte=10, ilp_address="g.agent.bob", price_kinds={"1": 5000})
    (first,) = publish_identity(agent)
    assert first.kind == 10032
    tags = [list(tag) for tag in first.tags]
    assert ["ilp_address", "g.agent.bob"] in tags
    assert ["price_per_byte", "10"] in tags
    assert ["price_kind_1", "5000"] in tags
    content = orjson.loads(first.content)
    assert content["ilpAddress"] == "g.agent.bob"
    assert {"btpEndpoint", "assetCode", "assetScale"} <= content.keys()
    assert publish_identity(agent) == []

    dearer = agent_with(price_per_byte=11, ilp_address="g.agent.bob", price_kinds={"1": 5000})
    (second,) = publish_identity(dearer)  # in the same second, and newer all the same
    assert second.created_at > first.created_at
    assert ["price_per_byte", "11"] in [list(tag) for tag in second.tags]
    assert agent.events.get(first.id) is None
    assert agent.events.get(second.id) is not None


def test_a_profile_is_published_if_there_is_one(agent_with: Any) -> None:
    kinds = [event.kind for event in publish_identity(agent_with(profile='{"name":"bob"}'))]
    assert kinds == [10032, 0]
    assert publish_identity(agent_with(profile='{"name":"bob"}')) == []
    assert [e.kind for e in publish_identity(agent_with(profile='{"name":"rob"}'))] == [0]


# What a payer makes of it


def good_terms(agent: Agent) -> RelayTerms:
    return terms_from_information(relay_information(agent.settings))


@pytest.mark.parametrize(
    "change",
    [
        {"ilp": None},
        {"ilp": {}},
        {"ilp": "g.bob"},
        {"self": "ff", "pubkey": "ff"},
        {"fees": {"publication": [{"kinds": [1], "amount": "1"}]}},
        {"fees": {"publication": [{"kinds": [1], "amount": -1}]}},
        {"fees": {"publication": [{"kinds": [1], "amount": True}]}},
        {"fees": {"publication": [{}]}},
        {"fees": {"publication": 5}},
        {"fees": {"publication_per_byte": {"amount": 0.5}}},
        {"fees": []},
    ],
)
def test_documents_that_do_not_say_how_to_pay(agent: Agent, change: dict[str, Any]) -> None:
    good_terms(agent)
    with pytest.raises(NotPayable):
        terms_from_information({**relay_information(agent.settings), **change})


@pytest.mark.parametrize("endpoint", ["", "ftp://a/ilp", "a/ilp", 7])
def test_endpoints_that_are_no_place_to_pay(agent: Agent, endpoint: object) -> None:
    document = relay_information(agent.settings)
    document["ilp"] = {**document["ilp"], "endpoint": endpoint}
    with pytest.raises(NotPayable):
        terms_from_information(document)


@pytest.mark.parametrize(
    "tag", [["price_per_byte", "x"], ["price_kind_x", "1"], ["ilp_address", "?"]]
)
def test_kind_10032_that_does_not_say_how_to_pay(tag: list[str]) -> None:
    tags = [["ilp_address", "g.a"], ["ilp_endpoint", "http://a"], tag]
    with pytest.raises(NotPayable):
        terms_from_peer_info(signed(kind=10032, tags=tags))


def test_a_tag_of_kind_10032_counts_before_its_content(agent: Agent) -> None:
    (own,) = publish_identity(agent)
    other = '{"ilpAddress":"g.other","httpEndpoint":"http://other","assetCode":"EUR"}'
    tags = [list(tag) for tag in own.tags]
    both = signed(kind=10032, secret=OWNER, tags=tags, content=other)
    assert terms_from_peer_info(both) == terms_from_peer_info(own)


def test_a_payment_made_from_the_terms_is_taken(agent: Agent, clock: Clock) -> None:
    now = datetime.fromtimestamp(clock.now, UTC)
    payment = prepare_payment(note(), ALICE, good_terms(agent), now)
    reply = send(agent, payment.prepare)
    assert_fulfilled(reply, payment.prepare)
    assert reply == Fulfill(payment.fulfillment)


@pytest.mark.parametrize("tags", [0, 1, 5, 16])
def test_ordinary_events_cost_their_bytes(agent: Agent, tags: int) -> None:
    event = signed(tags=[["t", f"{number}"] for number in range(tags)])
    assert quote_event(agent, event)["price"] == str(len(dumps_event(event)) * 10)


def test_a_long_follow_list_costs_its_bytes(agent: Agent) -> None:
    """Its tags are long: their bytes pay for their index entries."""
    event = signed(kind=3, tags=[["p", f"{number:064x}"] for number in range(300)])
    assert quote_event(agent, event)["price"] == str(len(dumps_event(event)) * 10)


def test_two_thousand_short_tags_pay_for_their_index_entries(agent: Agent) -> None:
    event = signed(tags=[["t", f"{number}"] for number in range(1800)])
    tariff = agent.settings.tariff
    price = int(quote_event(agent, event)["price"])
    assert price == (1800 - tariff.free_tags) * tariff.per_tag
    assert price > 4 * len(dumps_event(event)) * tariff.per_byte
    refusal = pay(agent, event, amount=price - 1)
    assert isinstance(refusal, Reject)
    assert orjson.loads(refusal.data)["price"] == str(price)


@pytest.mark.parametrize("tags", [-1, "3", 1.5, True, None, 10**6])
def test_quotes_for_what_is_no_number_of_tags(agent: Agent, tags: object) -> None:
    with pytest.raises(InvalidQuoteRequest):
        quote_size(agent, 1, 100, tags)


@pytest.mark.parametrize(
    ("fixed", "ppm", "amount", "fee"),
    [
        (0, 1000, 0, 0),
        (100, 1000, 0, 0),
        (0, 1000, 999, 5),
        (0, 1000, 10_000, 10),
        (3, 0, 10_000, 5),
        (7, 0, 1, 7),
        (0, 0, 10_000, 0),
    ],
)
def test_forwarding_keeps_at_least_the_least_fee(
    fixed: int, ppm: int, amount: int, fee: int
) -> None:
    assert forwarding_fee(fixed, ppm, amount, least=5) == fee
