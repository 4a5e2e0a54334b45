"""Settlement engines (RFC 0038), both ways: each payment counts once, whatever is repeated."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import sha256

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farthing.agent.audit import audit
from farthing.connector.settlement import (
    InvalidSettlement,
    quantity,
    receive_settlement,
    settle_payables,
)
from farthing.context import Agent
from farthing.ports.http import Conflict
from farthing.ports.outbound import OutboundFailed, OutboundTimeout, Response
from farthing.store.ledger import Hold, Peer, hash_token
from farthing.store.receipts import Forwarded, Receipt
from farthing.store.settlements import Settlement
from farthing.store.table import Engine
from tests.relay.world import Clock, make_agent

ANN = Peer("ann", hash_token("ann"))
EVE = Peer("eve", hash_token("eve"))
THRESHOLD = 100


class Bank:
    """A settlement engine that remembers what it was asked, and pays once for a key."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.paid: dict[tuple[str, str], int] = {}
        self.status: int | None = 201
        self.accounts: set[str] | None = None  # None: it knows them all
        self.before: Callable[[], None] = lambda: None
        self.is_mute = False

    def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Response:
        key, wanted = headers.get("Idempotency-Key", ""), orjson.loads(body)
        self.asked.append((url, key, wanted))
        before, self.before = self.before, lambda: None
        before()
        if self.status is None:
            raise OutboundFailed("nobody is there")
        if url.endswith("/accounts"):
            assert self.accounts is not None
            self.accounts.add(wanted["id"])
            return Response(201, b"")
        account = url.split("/")[-2]
        if self.accounts is not None and account not in self.accounts:
            return Response(404, b"")
        if self.status == 201:
            paid = self.paid.setdefault((account, key), int(wanted["amount"]))
            assert paid == int(wanted["amount"]), "a key stands for one amount"
        if self.is_mute:
            raise OutboundTimeout("the answer was lost")
        return Response(self.status, b"")

    @property
    def total(self) -> int:
        return sum(self.paid.values())


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
    fulfillment = number.to_bytes(32)
    hold = Hold("ann", fulfillment.hex(), amount, agent.now_ms + 1000)
    condition = sha256(fulfillment).hexdigest()
    purpose = Forwarded("eve", amount, 1, packet=hold.packet)
    receipt = Receipt("ann", condition, fulfillment.hex(), "", amount, 0, agent.now, purpose)
    assert agent.ledger.hold(hold, 10**9)
    assert agent.ledger.post(hold, agent.ledger.forwarded(receipt))


# What an engine reports


def test_what_a_peer_has_paid_it_owes_no_longer(agent: Agent) -> None:
    forwarded(agent, 500)
    answer = receive_settlement(agent, "ann", "key", {"amount": "300", "scale": 9})
    assert answer == {"amount": "300", "scale": 9}
    balance = agent.ledger.balance("ann")
    assert (balance.posted, balance.owed) == (200, 200)
    assert audit(agent).differences == []


def test_a_repeat_counts_once_and_another_amount_is_refused(agent: Agent) -> None:
    forwarded(agent, 500)
    for _ in range(3):
        receive_settlement(agent, "ann", "key", {"amount": "300", "scale": 9})
    with pytest.raises(Conflict):
        receive_settlement(agent, "ann", "key", {"amount": "301", "scale": 9})
    assert agent.ledger.balance("ann").posted == 200
    receive_settlement(agent, "eve", "key", {"amount": "300", "scale": 9})  # another account's key
    assert agent.ledger.balance("eve").posted == -300
    assert audit(agent).differences == []


def test_paying_ahead_is_credit(agent: Agent) -> None:
    receive_settlement(agent, "ann", "key", {"amount": "1000", "scale": 9})
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
        {"amount": str(2**63), "scale": 9},
        {"amount": "9" * 12, "scale": 0},
    ],
    ids=str,
)
def test_what_is_no_quantity_is_refused(agent: Agent, body: object) -> None:
    with pytest.raises(InvalidSettlement):
        receive_settlement(agent, "ann", "key", body)
    assert agent.ledger.balance("ann").posted == 0


@pytest.mark.parametrize("key", ["", "caf\udce9", "a\x7f"])
def test_a_settlement_needs_a_key(agent: Agent, key: str) -> None:
    with pytest.raises(InvalidSettlement):
        receive_settlement(agent, "ann", key, {"amount": "5", "scale": 9})


@given(st.integers(0, 9 * 10**9), st.integers(0, 18), st.integers(0, 9))
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


@pytest.mark.parametrize("status", [None, 500, 400])
def test_a_debt_that_the_engine_did_not_take_stays_and_keeps_its_key(
    agent: Agent, bank: Bank, status: int | None
) -> None:
    forwarded(agent, 500)
    bank.status = status
    assert settle_payables(agent) == 0
    assert agent.ledger.balance("eve").payable == 500
    bank.status = 201
    assert settle_payables(agent) == 1
    keys = {key for _, key, _ in bank.asked if key}
    assert len(keys) == 1
    assert (bank.total, agent.ledger.balance("eve").payable) == (500, 0)
    assert audit(agent).differences == []


def test_a_debt_that_grows_while_an_answer_is_lost_is_paid_once(agent: Agent, bank: Bank) -> None:
    """The engine has paid, and we do not know it: it must not be asked for more under a new key."""
    forwarded(agent, 500)
    bank.is_mute = True
    assert settle_payables(agent) == 0
    forwarded(agent, 300, number=1)
    bank.is_mute = False
    assert settle_payables(agent) == 1
    assert (bank.total, agent.ledger.balance("eve").payable) == (500, 300)
    assert settle_payables(agent) == 1
    assert (bank.total, agent.ledger.balance("eve").payable) == (800, 0)
    assert audit(agent).differences == []


def test_two_who_settle_at_once_pay_once(agent: Agent, bank: Bank) -> None:
    forwarded(agent, 500)

    def other() -> None:
        settle_payables(agent)
        forwarded(agent, 7, number=1)

    bank.before = other
    settle_payables(agent)
    assert (bank.total, agent.ledger.balance("eve").payable) == (500, 7)
    assert settle_payables(agent) == 0
    assert audit(agent).differences == []


def test_a_settlement_that_began_from_an_old_look_is_refused(agent: Agent) -> None:
    forwarded(agent, 500)
    settlements, looked = agent.settlements, agent.settlements.last_asked("eve")
    assert settle_payables(agent) == 1
    late = Settlement("eve", "another key", 500, False, agent.now)
    assert settlements.begin(late, looked) is False
    assert settlements.finish(late) is False
    assert agent.ledger.balance("eve").payable == 0
    assert audit(agent).differences == []


def test_an_engine_is_told_of_an_account_that_it_does_not_know(agent: Agent, bank: Bank) -> None:
    forwarded(agent, 500)
    bank.accounts = set()
    assert settle_payables(agent) == 1
    urls = [url.removeprefix("http://bank.example") for url, _, _ in bank.asked]
    assert urls == ["/accounts/eve/settlements", "/accounts", "/accounts/eve/settlements"]
    assert bank.asked[1][1:] == ("", {"id": "eve"})
    assert bank.asked[0][1] == bank.asked[2][1]


def test_a_removed_peers_debts_are_still_settled(agent: Agent, bank: Bank) -> None:
    forwarded(agent, 500)
    for peer in (ANN, EVE):
        agent.ledger.remove_peer(peer.id)
    assert settle_payables(agent) == 1
    assert agent.ledger.has_account("ann")
    assert not agent.ledger.has_account("nobody")
    receive_settlement(agent, "ann", "key", {"amount": "500", "scale": 9})
    assert agent.ledger.balance("ann").posted == agent.ledger.balance("eve").payable == 0
    assert audit(agent).differences == []


def test_without_an_engine_nothing_is_asked(agent: Agent, bank: Bank) -> None:
    silent = replace(agent, settings=replace(agent.settings, settlement_url=""))
    forwarded(agent, 500)
    assert settle_payables(silent) == 0
    assert bank.asked == []
