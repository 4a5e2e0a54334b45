"""`farthing routes`, `routes explain` and `ledger` on a data folder."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from farthing.context import Agent
from farthing.settings import Settings
from farthing.store.ledger import Hold, Peer, hash_token
from farthing.store.receipts import Forwarded, Receipt
from farthing.store.routes import Route
from farthing.store.settlements import Settlement
from infra.local import cli
from infra.local.commands.bookkeeping import offline_agent

BOB = Peer("bob", hash_token("bob"), "g.agent.bob", "http://bob.example/ilp", pubkey="b" * 64)
ANN = Peer("ann", hash_token("ann"))
EVE_KEY = "e" * 64

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    with offline_agent(Settings(data=str(tmp_path), ilp_address="g.agent.me")) as agent:
        for peer in (ANN, BOB):
            agent.ledger.add_peer(peer)
        yield agent


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    settings = {"data": str(tmp_path), "ilp_address": "g.agent.me", "forward_fee": "7"}
    for name, value in settings.items():
        monkeypatch.setenv(f"FARTHING_{name.upper()}", value)

    def run(*arguments: str) -> tuple[int, str]:
        status = cli.main(arguments)
        told = capsys.readouterr()
        return status, told.out + told.err

    return run


def with_routes(agent: Agent, *routes: Route) -> None:
    agent.routes.replace("one", routes, agent.now, shrink_percent=100, force=True)


def test_routes_are_listed(agent: Agent, run: Run) -> None:
    assert run("routes") == (
        1, "farthing: there is no routing table yet: farthing routes rebuild\n"
    )  # fmt: skip
    with_routes(agent, Route("g.agent.eve", EVE_KEY, BOB.pubkey, 110, 2))
    status, told = run("routes")
    assert status == 0
    assert told.splitlines()[2].split() == ["g.agent.eve", "110", "2", "b" * 16]


def test_a_route_is_explained_hop_by_hop(agent: Agent, run: Run) -> None:
    with_routes(agent, Route("g.agent.eve", EVE_KEY, BOB.pubkey, 110, 2, (BOB.pubkey, EVE_KEY)))
    status, told = run("routes", "explain", "g.agent.eve.shop")
    assert status == 0
    assert f"g.agent.eve, claimed by {EVE_KEY}" in told
    assert "110 over 2 hops" in told
    assert told.index("hop 1     b") < told.index("hop 2     e")
    assert "peer bob at http://bob.example/ilp" in told
    assert "we keep     17 of 10000" in told


def test_a_peers_own_address_needs_no_table(agent: Agent, run: Run) -> None:
    status, told = run("routes", "explain", "g.agent.bob.shop")
    assert status == 0
    assert "g.agent.bob, the address of a peer of ours" in told


@pytest.mark.parametrize(
    ("address", "status", "why"),
    [
        ("g.agent.me.x", 0, "this agent's own"),
        ("g.agent.nobody", 1, "no route to g.agent.nobody"),
        ("g.agent.far", 1, "not a peer of ours"),
        ("g.agent.bob", 1, "peer bob is not active: farthing peers set bob --active"),
        ("not an address", 1, "is not an ILP address"),
    ],
)
def test_what_would_be_rejected_is_told(
    agent: Agent, run: Run, address: str, status: int, why: str
) -> None:
    agent.ledger.replace_peer(replace(BOB, active=False))
    with_routes(agent, Route("g.agent.far", "f" * 64, "f" * 64, 0, 1))
    done = run("routes", "explain", address)
    assert done[0] == status
    assert why in done[1]


def forward(agent: Agent, amount: int, outgoing: int) -> None:
    fulfillment = bytes(32)
    hold = Hold("ann", fulfillment.hex(), amount, agent.now_ms + 1000)
    purpose = Forwarded("bob", outgoing, 1, packet=hold.packet)
    receipt = Receipt(
        "ann", sha256(fulfillment).hexdigest(), fulfillment.hex(), "", amount, amount - outgoing,
        agent.now, purpose,
    )  # fmt: skip
    assert agent.ledger.hold(hold, 10**9)
    assert agent.ledger.post(hold, agent.ledger.forwarded(receipt))


def test_a_statement_shows_both_sides_of_a_packet_and_what_was_settled(
    agent: Agent, run: Run
) -> None:
    forward(agent, 500, 400)
    agent.settlements.receive(Settlement("ann", "key", 300, True, agent.now))
    asked = Settlement("bob", "another", 400, False, agent.now)
    assert agent.settlements.begin(asked, None)

    _, theirs = run("ledger", "ann")
    _, ours = run("ledger", "bob")
    agent.settlements.finish(asked)
    _, settled = run("ledger", "bob")

    assert [line.split()[2:] for line in theirs.splitlines()[1:-1]] == [
        ["forwarded", "+500", "to", "bob"],
        ["settled", "-300"],
    ]
    assert theirs.endswith("owes us 200, pending 0, we owe 0\n")
    assert "passed on" in ours and "+400  from ann" in ours
    assert "asked to settle" in ours
    assert ours.endswith("owes us 0, pending 0, we owe 400\n")
    assert "we settled" in settled and "asked" not in settled
    assert settled.endswith("owes us 0, pending 0, we owe 0\n")


def test_all_accounts_are_listed_also_of_those_who_left(agent: Agent, run: Run) -> None:
    forward(agent, 500, 400)
    agent.ledger.remove_peer("bob")
    status, told = run("ledger")
    assert status == 0
    assert [line.split() for line in told.splitlines()[1:]] == [
        ["ann", "500", "0", "0"],
        ["bob", "0", "0", "400", "(no", "longer", "a", "peer)"],
    ]
    assert run("ledger", "bob")[0] == 0
    assert run("ledger", "nobody") == (1, "farthing: there is no account 'nobody'\n")
