"""Our own payments: the exchange with a connector, and paying what others keep on the way."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import orjson
import pytest

from farthing.connector.client import (
    ForgedFulfillment,
    PaymentFailed,
    PreparedPayment,
    RelayTerms,
    Shortfall,
    pay,
    prepare_payment,
    send_payment,
    shortfall,
)
from farthing.connector.exchange import RefusedByHttp
from farthing.context import Agent
from farthing.ilp.packet import (
    Code,
    Fulfill,
    Prepare,
    Reject,
    decode_prepare,
    encode,
)
from farthing.ports.outbound import Response
from tests.ilp.paying import note
from tests.relay.world import ALICE

NOW = datetime(2027, 1, 15, tzinfo=UTC)
Reply = Callable[[Prepare], Fulfill | Reject]


class Connector:
    def __init__(self, reply: Callable[[Prepare], Response | Fulfill | Reject]) -> None:
        self.reply = reply
        self.seen: list[Prepare] = []

    def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Response:
        assert (url, headers["Authorization"]) == ("http://hop/ilp", "Bearer token")
        assert 0 < timeout < 60
        self.seen.append(decode_prepare(body))
        reply = self.reply(self.seen[-1])
        return reply if isinstance(reply, Response) else Response(200, encode(reply))

    def call_back(self, *_: object) -> None:
        raise AssertionError


@pytest.fixture
def payment(agent: Agent) -> PreparedPayment:
    settings = agent.settings
    terms = RelayTerms(settings.own_ilp_address, "http://hop/ilp", settings.pubkey, settings.tariff)
    return prepare_payment(note(), ALICE, terms, NOW)


def chain(payment: PreparedPayment, *hops: Callable[[int], int]) -> Reply:
    """Connectors that keep something each, and a relay that wants its price."""

    def reply(prepare: Prepare) -> Fulfill | Reject:
        arrived = prepare.amount
        for hop in hops:
            arrived -= hop(arrived)
        if arrived >= payment.amount:
            assert payment.fulfillment is not None
            return Fulfill(payment.fulfillment)
        told = {"price": str(payment.amount), "received": str(arrived)}
        code = Code.F04_INSUFFICIENT_DESTINATION_AMOUNT
        return Reject(code, "g.relay", "too little", orjson.dumps(told))

    return reply


def test_without_connectors_in_between_the_price_is_paid_once(payment: PreparedPayment) -> None:
    connector = Connector(chain(payment))
    paid, reply = pay(connector, "http://hop/ilp", "token", payment, max_fees=0)
    assert isinstance(reply, Fulfill)
    assert (paid, len(connector.seen)) == (payment, 1)


@pytest.mark.parametrize(
    "hops",
    [
        [lambda _: 100],
        [lambda amount: amount // 1000],
        [lambda amount: amount // 10, lambda amount: 7 + amount // 50],
    ],
)
def test_what_connectors_keep_is_paid_on_top(
    payment: PreparedPayment, hops: list[Callable[[int], int]]
) -> None:
    connector = Connector(chain(payment, *hops))
    paid, reply = pay(connector, "http://hop/ilp", "token", payment, max_fees=payment.amount)
    assert isinstance(reply, Fulfill)
    assert paid.amount == connector.seen[-1].amount > payment.amount
    first, last = connector.seen[0], connector.seen[-1]
    assert (first.condition, first.data) == (last.condition, last.data)
    assert len(connector.seen) <= 4


def test_no_more_than_the_fees_that_are_allowed(payment: PreparedPayment) -> None:
    connector = Connector(chain(payment, lambda _: 100))
    paid, reply = pay(connector, "http://hop/ilp", "token", payment, max_fees=99)
    assert isinstance(reply, Reject)
    assert (paid.amount, len(connector.seen)) == (payment.amount, 1)


def test_a_greedy_connector_is_given_up(payment: PreparedPayment) -> None:
    connector = Connector(chain(payment, lambda amount: amount - 1))
    _, reply = pay(connector, "http://hop/ilp", "token", payment, max_fees=10**12)
    assert isinstance(reply, Reject)
    assert len(connector.seen) == 4


@pytest.mark.parametrize(
    ("response", "error"),
    [
        (Response(401, b""), RefusedByHttp),
        (Response(502, b"bad gateway"), RefusedByHttp),
        (Response(200, b"no packet"), PaymentFailed),
        (Response(200, encode(Fulfill(bytes(32)))), ForgedFulfillment),
    ],
)
def test_answers_that_are_no_reply(
    payment: PreparedPayment, response: Response, error: type[PaymentFailed]
) -> None:
    connector = Connector(lambda _: response)
    with pytest.raises(error):
        send_payment(connector, "http://hop/ilp", "token", payment, lambda _: None)
    assert len(connector.seen) == (4 if response.status == 502 else 1)


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_packet_that_a_gateway_did_not_answer_is_sent_again_as_it_was(
    payment: PreparedPayment, status: int
) -> None:
    """A function that is replaced in the midst of a call leaves its caller with a 502."""
    reply, waits = Reject("F04", "g.relay", "too little"), list[float]()
    answers = iter([Response(status, b""), Response(status, b""), Response(200, encode(reply))])
    connector = Connector(lambda _: next(answers))

    assert send_payment(connector, "http://hop/ilp", "token", payment, waits.append) == reply
    assert connector.seen == [payment.prepare] * 3
    assert waits == sorted(waits)


@pytest.mark.parametrize(
    ("code", "data", "found"),
    [
        ("F04", b'{"price":"10","received":"7"}', Shortfall(10, 7)),
        ("F04", b'{"price":10,"received":0}', Shortfall(10, 0)),
        ("F04", b'{"price":"10","received":"10"}', None),
        ("F04", b'{"price":"-1","received":"-2"}', None),
        ("F04", b'{"price":true,"received":0}', None),
        ("F04", b'{"price":"10"}', None),
        ("F04", b'["price","received"]', None),
        ("F04", b"", None),
        ("R01", b'{"price":"10","received":"7"}', None),
    ],
)
def test_only_an_f04_with_both_amounts_states_a_shortfall(
    code: str, data: bytes, found: Shortfall | None
) -> None:
    assert shortfall(Reject(code, "g.relay", "too little", data)) == found
