"""Settlement engines (RFC 0038), both ways: each payment counts once, whatever is repeated."""

from collections.abc import Mapping
from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farthing.agent import Agent
from farthing.ilp.outbound import OutboundFailed, Response
from farthing.ilp.settlement import (
    InvalidSettlement,
    quantity,
    receive_settlement,
    settle_payables,
)
from farthing.relay.audit import audit
from farthing.store.ledger import Hold, Peer, Receipt, hash_token
from farthing.store.settlements import KeyUsedDifferently
from farthing.store.table import Engine
from tests.relay.world import Clock, make_agent

ANN = Peer("ann", hash_token("ann"))
EVE = Peer("eve", hash_token("eve"))
FULFILLMENT, CONDITION = (
    bytes(32).hex(),
    ("66687aadf862bd776c8fc18b8e9f8e20089714856ee233b3902a591d0d5f2925"),
)
THRESHOLD = 100


class Bank:
    """A settlement engine that remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict[str, object]]] = []
        self.status: int | None = 201

    def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Response:
        self.asked.append((url, headers["Idempotency-Key"], orjson.loads(body)))
        if self.status is None:
            raise OutboundFailed("nobody is there")
        return Response(self.status, b"")


@pytest.fixture
def bank() -> Bank:
    return Bank()


@pytest.fixture
def agent(engine: Engine, clock: Clock, bank: Bank) -> Agent:
    agent = make_agent(
        engine, clock, settlement_url="http://bank.example/", settlement_threshold=THRESHOLD,
        asset_scale=9,
    )  # fmt: skip
    for peer in (ANN, EVE):
        agent.ledger.add_peer(peer)
    return replace(agent, outbound=bank)


def forwarded(agent: Agent, amount: int, number: int = 0) -> None:
    """A packet of Ann's that Eve took on: Ann owes us, and we owe Eve."""
    packet = f"{number:064x}"
    hold = Hold("ann", packet, amount, agent.now_ms + 1000)
    receipt = Receipt("ann", CONDITION, "", amount, 0, agent.now, FULFILLMENT, -1, 1, "",
                      next_hop="eve", outgoing=amount)  # fmt: skip
    assert agent.ledger.hold(hold, 10**9)
    assert agent.ledger.post(hold, agent.ledger.forwarded(receipt))


# What an engine reports


def test_what_a_peer_has_paid_it_owes_no_longer(agent: Agent) -> None:
    forwarded(agent, 500)
    answer = receive_settlement(agent, ANN, "key", {"amount": "300", "scale": 9})
    assert answer == {"amount": "300", "scale": 9}
    balance = agent.ledger.balance("ann")
    assert (balance.posted, balance.owed) == (200, 200)
    assert audit(agent).differences == []


def test_a_repeat_counts_once_and_another_amount_is_refused(agent: Agent) -> None:
    forwarded(agent, 500)
    for _ in range(3):
        receive_settlement(agent, ANN, "key", {"amount": "300", "scale": 9})
    with pytest.raises(KeyUsedDifferently):
        receive_settlement(agent, ANN, "key", {"amount": "301", "scale": 9})
    assert agent.ledger.balance("ann").posted == 200
    receive_settlement(agent, EVE, "key", {"amount": "300", "scale": 9})  # another account's key
    assert agent.ledger.balance("eve").posted == -300
    assert audit(agent).differences == []


def test_paying_ahead_is_credit(agent: Agent) -> None:
    receive_settlement(agent, ANN, "key", {"amount": "1000", "scale": 9})
    for number in range(3):
        assert agent.ledger.hold(Hold("ann", f"{number:064x}", 500, 10**15), 500)
    assert not agent.ledger.hold(Hold("ann", "cd" * 32, 1, 10**15), 500)


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        {},
        {"amount": 5, "scale": 9},
        {"amount": "-5", "scale": 9},
        {"amount": "5.0", "scale": 9},
        {"amount": "\u0665", "scale": 9},
        {"amount": "5"},
        {"amount": "5", "scale": True},
        {"amount": "5", "scale": 256},
        {"amount": "5" * 39, "scale": 9},
    ],
    ids=str,
)
def test_what_is_no_quantity_is_refused(agent: Agent, body: object) -> None:
    with pytest.raises(InvalidSettlement):
        receive_settlement(agent, ANN, "key", body)
    assert agent.ledger.balance("ann").posted == 0


def test_a_settlement_needs_a_key(agent: Agent) -> None:
    with pytest.raises(InvalidSettlement):
        receive_settlement(agent, ANN, "", {"amount": "5", "scale": 9})


@given(st.integers(0, 10**18), st.integers(0, 18), st.integers(0, 18))
def test_scales_are_converted_downwards(amount: int, given_scale: int, scale: int) -> None:
    counted = quantity({"amount": str(amount), "scale": given_scale}, scale)
    assert counted * 10**given_scale <= amount * 10**scale
    assert (counted + 1) * 10**given_scale > amount * 10**scale


# What we ask of one


def test_what_we_owe_is_settled_above_the_threshold(agent: Agent, bank: Bank) -> None:
    forwarded(agent, THRESHOLD)
    assert settle_payables(agent) == 0
    assert bank.asked == []


def test_the_engine_is_asked_once_for_a_debt(agent: Agent, bank: Bank) -> None:
    forwarded(agent, THRESHOLD + 1)
    assert settle_payables(agent) == 1
    [(url, _, body)] = bank.asked
    assert url == "http://bank.example/accounts/eve/settlements"
    assert body == {"amount": str(THRESHOLD + 1), "scale": 9}
    assert agent.ledger.balance("eve").payable == 0
    assert settle_payables(agent) == 0
    assert audit(agent).differences == []


@pytest.mark.parametrize("status", [None, 500, 404])
def test_a_debt_that_the_engine_did_not_take_stays_and_keeps_its_key(
    agent: Agent, bank: Bank, status: int | None
) -> None:
    forwarded(agent, 500)
    bank.status = status
    assert settle_payables(agent) == 0
    assert agent.ledger.balance("eve").payable == 500
    bank.status = 201
    assert settle_payables(agent) == 1
    assert bank.asked[0][1] == bank.asked[1][1]
    assert audit(agent).differences == []


def test_without_an_engine_nothing_is_asked(agent: Agent, bank: Bank) -> None:
    silent = replace(agent, settings=replace(agent.settings, settlement_url=""))
    forwarded(agent, 500)
    assert settle_payables(silent) == 0
    assert bank.asked == []
