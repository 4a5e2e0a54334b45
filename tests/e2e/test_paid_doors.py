"""Every door of a relay with a price: what does not pay is refused everywhere and changes nothing,
what pays is stored, fulfilled, and reaches those who listen."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import orjson
import pytest

from farthing.ilp.condition import condition_of, interop_fulfillments
from farthing.ilp.packet import Fulfill, Reject
from tests.e2e.authors import Author
from tests.e2e.client import RawClient
from tests.e2e.paying import (
    PER_BYTE,
    as_event,
    books,
    free_port,
    http,
    information,
    pay,
    payment_for,
    post_packet,
    quote_for,
    reply_of,
    token_of,
)
from tests.e2e.relay_process import RelayProcess


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayProcess]:
    data = tmp_path_factory.mktemp("paid") / "data"
    relay = RelayProcess(data, port=free_port(), price_per_byte=PER_BYTE).start()
    yield relay
    assert relay.stop() == 0
    relay.check_log()


# Refused at every door


def by_websocket(relay: RelayProcess, client: RawClient, author: Author, event: Any) -> None:
    accepted, reason = client.publish(event)
    price = payment_for(relay, author, event).amount
    assert not accepted
    assert reason.startswith(f"restricted: this costs {price} ")
    assert information(relay)["payments_url"] in reason


def by_plain_http(relay: RelayProcess, _: RawClient, author: Author, event: Any) -> None:
    answer = http("POST", f"{relay.http}/v1/events", orjson.dumps(event))
    assert answer.status == 402
    assert answer.headers["Content-Type"] == "application/problem+json"
    problem = answer.json()
    quote = quote_for(relay, event)
    assert problem | {**quote, "expires_at": problem["expires_at"]} == problem
    assert problem["price"] == str(payment_for(relay, author, event).amount)


def with_too_little(relay: RelayProcess, _: RawClient, author: Author, event: Any) -> None:
    payment = payment_for(relay, author, event)
    poor = payment_for(relay, author, event, amount=payment.amount - 1)
    reply = pay(relay, poor)
    assert isinstance(reply, Reject)
    assert reply.code == "F04"
    details = orjson.loads(reply.data)
    assert details["price"] == str(payment.amount)
    assert details["received"] == str(payment.amount - 1)


def with_nothing(relay: RelayProcess, _: RawClient, author: Author, event: Any) -> None:
    assert code(pay(relay, payment_for(relay, author, event, amount=0))) == "F04"


def with_a_wrong_condition(relay: RelayProcess, _: RawClient, author: Author, event: Any) -> None:
    assert code(pay(relay, payment_for(relay, author, event, condition=bytes(32)))) == "F05"
    assert code(pay(relay, payment_for(relay, Author(), event))) == "F05"


def with_a_bad_signature(relay: RelayProcess, _: RawClient, author: Author, event: Any) -> None:
    forged = {**event, "sig": author.event()["sig"]}
    assert code(pay(relay, payment_for(relay, author, forged))) == "F00"
    altered = {**event, "content": "altered"}
    assert code(pay(relay, payment_for(relay, author, altered))) == "F00"


def with_a_wrong_token(relay: RelayProcess, _: RawClient, author: Author, event: Any) -> None:
    prepare = payment_for(relay, author, event).prepare
    for authorization in ("Bearer wrong", "", f"Bearer {token_of(relay)[:-1]}", "Bearer a.b.c"):
        answer = post_packet(relay, prepare, Authorization=authorization)
        assert answer.status == 401
        assert answer.headers["Content-Type"] == "application/problem+json"
    assert post_packet(relay, prepare, Authorization="Bearer \xff\xfe").status == 401


def with_the_wrong_media_type(relay: RelayProcess, _: RawClient, author: Author, e: Any) -> None:
    prepare = payment_for(relay, author, e).prepare
    assert post_packet(relay, prepare, Content_Type="application/json").status == 400


def to_somebody_else(relay: RelayProcess, _: RawClient, author: Author, event: Any) -> None:
    payment = payment_for(relay, author, event, destination="g.agent.somebody-else")
    assert code(pay(relay, payment)) == "F02"


def code(reply: Fulfill | Reject) -> str:
    return reply.code if isinstance(reply, Reject) else "fulfilled"


DOORS = [
    by_websocket,
    by_plain_http,
    with_too_little,
    with_nothing,
    with_a_wrong_condition,
    with_a_bad_signature,
    with_a_wrong_token,
    with_the_wrong_media_type,
    to_somebody_else,
]


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_a_strangers_unpaid_event_is_refused(
    relay: RelayProcess, client: RawClient, door: Any
) -> None:
    author = Author()
    event = author.event(tags=[["t", "unpaid"]])
    before = books(relay)
    door(relay, client, author, event)
    assert books(relay) == before
    assert (
        client.ids({"ids": [event["id"]]}, {"authors": [author.pubkey]}, {"#t": ["unpaid"]}) == []
    )


def test_a_body_that_is_too_large(relay: RelayProcess) -> None:
    for size in (40_000, 2_000_000):
        answer = http(
            "POST", f"{relay.http}/ilp", bytes(size), Content_Type="application/octet-stream"
        )
        assert answer.status == 413


# Paid


def test_paid_at_the_exact_price_it_is_stored_and_reaches_a_subscriber(
    relay: RelayProcess, connect: Any, client: RawClient
) -> None:
    author = Author()
    event = author.event("paid", tags=[["t", "paid"]])
    assert client.request("live", {"authors": [author.pubkey]}) == []
    payment = payment_for(relay, author, event)

    reply = pay(relay, payment)

    assert reply == Fulfill(payment.fulfillment)
    assert condition_of(payment.fulfillment) == payment.prepare.condition
    assert client.wait_for("EVENT", "live")[2] == event
    assert connect().ask({"#t": ["paid"], "authors": [author.pubkey]}) == [event]
    assert pay(relay, payment) == reply  # sent again, as after a lost answer
    assert books(relay).keys() >= {("events", event["id"], "e")}


def test_a_payer_who_is_not_the_author_pays_by_quote(
    relay: RelayProcess, client: RawClient
) -> None:
    event = Author().event("someone else pays")
    quote = quote_for(relay, event)
    condition = bytes.fromhex(quote["condition"])
    payment = payment_for(relay, Author(), event, condition=condition, amount=int(quote["price"]))
    reply = reply_of(post_packet(relay, payment.prepare))
    assert isinstance(reply, Fulfill)
    assert condition_of(reply.fulfillment) == condition
    assert set(client.ids({"ids": [event["id"]]})) == {event["id"]}  # stored, and live as well


def test_deployed_payers_are_served_too(relay: RelayProcess, client: RawClient) -> None:
    author = Author()
    event = author.event("by the event's id")
    prepare = payment_for(relay, author, event).prepare
    fulfillment, _ = interop_fulfillments(as_event(event).id, prepare.data)
    reply = reply_of(post_packet(relay, replace(prepare, condition=condition_of(fulfillment))))
    assert reply == Fulfill(fulfillment)
    assert set(client.ids({"ids": [event["id"]]})) == {event["id"]}


def test_an_ephemeral_event_is_paid_for_and_delivered(
    relay: RelayProcess, client: RawClient
) -> None:
    author = Author()
    event = author.event(kind=20001)
    client.request("live", {"kinds": [20001], "authors": [author.pubkey]})
    assert isinstance(pay(relay, payment_for(relay, author, event)), Fulfill)
    assert client.wait_for("EVENT", "live")[2] == event
    assert client.ids({"ids": [event["id"]]}) == []


def test_a_deletion_is_paid_for_and_works(relay: RelayProcess, client: RawClient) -> None:
    author = Author()
    event = author.event()
    deletion = author.event(kind=5, tags=[["e", event["id"]]])
    client.request("live", {"authors": [author.pubkey]})
    for each in (event, deletion):
        assert isinstance(pay(relay, payment_for(relay, author, each)), Fulfill)
        assert client.wait_for("EVENT", "live")[2] == each
    assert client.ids({"authors": [author.pubkey]}) == [deletion["id"]]


def test_the_owner_writes_for_free_by_plain_http(relay: RelayProcess, client: RawClient) -> None:
    owner = Author((relay.data / "secret-key").read_text().strip())
    event = owner.event("mine")
    answer = http("POST", f"{relay.http}/v1/events", orjson.dumps(event))
    assert (answer.status, answer.json()["stored"]) == (200, True)
    assert set(client.ids({"ids": [event["id"]]})) == {event["id"]}


def test_a_request_id_is_answered_once(relay: RelayProcess) -> None:
    author = Author()
    payment = payment_for(relay, author, author.event())
    first = post_packet(relay, payment.prepare, Request_Id="once")
    after = books(relay)
    assert post_packet(relay, payment.prepare, Request_Id="once").data == first.data
    assert reply_of(first) == Fulfill(payment.fulfillment)
    assert books(relay) == after


def test_packets_and_revenue_are_counted(relay: RelayProcess) -> None:
    author = Author()
    payment = payment_for(relay, author, author.event())
    before = metrics(relay)
    pay(relay, payment)
    pay(relay, payment_for(relay, author, author.event(), amount=0))
    after = metrics(relay)
    grown = {name: after[name] - before.get(name, 0) for name in after}
    assert grown["farthing_packets_fulfilled_total"] == 1
    assert grown['farthing_packets_rejected_total{code="F04"}'] == 1
    assert grown["farthing_revenue_total"] == payment.amount
    assert grown["farthing_price_total"] == payment.amount


def metrics(relay: RelayProcess) -> dict[str, int]:
    lines = http("GET", f"{relay.http}/metrics").data.decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
    return {name: int(float(value)) for name, value in pairs}
