"""Follow = peer = route: the document's example with six running agents, and what can go wrong."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise

import pytest

from farthing.ilp.packet import Fulfill, Reject, encode
from tests.e2e.authors import Author
from tests.e2e.client import RawClient
from tests.e2e.settlement_engine import Payee, SettlementEngine, settlement_engine
from tests.e2e.town import ENGINE_TOKEN, FEE, FOLLOWS, NAMES, NOTHING, Town

Connect = Callable[..., RawClient]


@pytest.fixture(autouse=True)
def all_ledgers_add_up(town: Town) -> Iterator[None]:
    yield
    town.check_books()


@pytest.fixture(scope="module")
def engine() -> Iterator[tuple[SettlementEngine, str]]:
    with settlement_engine() as running:
        yield running


@pytest.fixture(scope="module")
def town(
    tmp_path_factory: pytest.TempPathFactory, engine: tuple[SettlementEngine, str]
) -> Iterator[Town]:
    town = Town(tmp_path_factory.mktemp("town"), engine[1])
    for name, others in FOLLOWS.items():
        for other in others:
            town.follow(name, other)
    # The graph travels a hop with every round: those nearer to its end go first.
    for name in ("bob", "carol"):
        town.run(name, "upkeep")
    # Bob has a table already, and announces it.
    town.route("bob", "g.agent.frank", "frank")
    assert "announced our routes" in town.run("bob", "upkeep")
    town.run("alice", "upkeep")
    town.run("alice", "routes", "rebuild")
    yield town
    town.audit()
    town.stop()


def test_alice_knows_the_way_to_everybody(town: Town) -> None:
    listed = town.run("alice", "routes").splitlines()[2:]
    hops = {line.split()[0]: line.split()[-1] for line in listed}
    through = {"bob": "bob", "carol": "carol", "eve": "bob", "frank": "bob", "grace": "carol"}
    assert hops == {f"g.agent.{to}": town[hop].pubkey[:16] for to, hop in through.items()}

    explained = town.run("alice", "routes", "explain", "g.agent.eve")
    assert f"claimed by {town['eve'].pubkey}" in explained
    assert f"{FEE} over 2 hops" in explained


def test_what_bob_announces_counts_for_the_way_through_him(town: Town) -> None:
    """His table says that Frank costs a fee behind him; his 10033 adds his own."""
    explained = town.run("alice", "routes", "explain", "g.agent.frank")
    assert f"{2 * FEE} over 3 hops" in explained


def test_follows_have_become_peers(town: Town) -> None:
    rows = [line.split() for line in town.run("alice", "follows").splitlines()]
    assert rows == [
        [town["bob"].pubkey, "peer", "g.agent.bob"],
        [town["carol"].pubkey, "peer", "g.agent.carol"],
    ]


def test_alice_pays_eves_relay_through_bob(town: Town, connect: Connect) -> None:
    author, before = Author(), town.money()
    subscriber = connect(town["eve"])
    subscriber.request("notes", {"authors": [author.pubkey]})
    event = author.event("hello Eve, from Alice, by way of Bob")
    price = town.price("eve", author, event)

    reply = town.pay("eve", author, event, fees=FEE)

    assert isinstance(reply, Fulfill), reply
    assert subscriber.wait_for("EVENT", "notes")[2]["id"] == event["id"]
    moved = {
        ("alice", "local"): (price + FEE, 0, 0),
        ("alice", "bob"): (0, 0, price + FEE),
        ("bob", "alice"): (price + FEE, 0, 0),
        ("bob", "eve"): (0, 0, price),
        ("eve", "bob"): (price, 0, 0),
    }
    assert difference(town.money(), before) == moved
    statement = town.run("bob", "ledger", "alice")
    assert f"owes us {town.money()['bob', 'alice'][0]}" in statement


def test_a_price_that_is_not_met_comes_back_from_the_end_of_the_way(town: Town) -> None:
    author, before = Author(), town.money()
    reply = town.pay("eve", author, author.event("too cheap"), fees=FEE - 1)
    assert isinstance(reply, Reject)
    assert (reply.code, reply.triggered_by) == ("F04", "g.agent.eve")
    assert b'"price"' in reply.data
    assert town.money() == before


def test_with_bob_stopped_no_money_moves(town: Town) -> None:
    author, before = Author(), town.money()
    assert town["bob"].stop() == 0
    try:
        reply = town.pay("eve", author, author.event("is anybody there"), fees=FEE)
    finally:
        town["bob"].start()
    assert isinstance(reply, Reject)
    assert (reply.code, reply.triggered_by) == ("T01", "g.agent.alice")
    assert town.money() == before


def test_a_bob_who_forges_a_fulfillment_is_found_out(town: Town) -> None:
    author, before = Author(), town.money()
    assert town["bob"].stop() == 0
    try:
        with forger(town["bob"].port):
            reply = town.pay("eve", author, author.event("a forged one"), fees=FEE)
    finally:
        town["bob"].start()
    assert isinstance(reply, Reject)
    assert (reply.code, reply.triggered_by) == ("F05", "g.agent.alice")
    assert town.money() == before


def test_bob_is_back_and_the_same_payment_goes_through(town: Town) -> None:
    author = Author()
    event = author.event("once more")
    assert isinstance(town.pay("eve", author, event, fees=FEE), Fulfill)
    before = town.money()
    # Repeated, it is answered from the receipt, and nothing moves.
    assert isinstance(town.pay("eve", author, event, fees=FEE), Fulfill)
    assert town.money() == before


def test_a_client_pays_the_fees_on_the_way_by_itself(town: Town) -> None:
    before = town.money()
    there = ("--relay", town["eve"].url, "--connector", f"{town['alice'].http}/ilp")
    told = town.run("alice", "post", "as a client does it", *there)
    rows = dict(line.split(maxsplit=1) for line in told.splitlines())
    price, paid = int(rows["price"].split()[0]), int(rows["paid"].split()[0])
    assert paid == price + FEE
    assert difference(town.money(), before)["eve", "bob"] == (price, 0, 0)


def test_alice_settles_with_bob_and_both_say_so(
    town: Town, engine: tuple[SettlementEngine, str]
) -> None:
    """Her engine pays what she owes, and his is told of it."""
    owed = town.money()["bob", "alice"][0]
    assert owed > 0
    engine[0].payees[town["bob"].pubkey[:16]] = Payee(town["bob"].http, "alice", ENGINE_TOKEN)

    assert "settled with 1 peers" in town.run("alice", "upkeep")

    money = town.money()
    assert money.get(("bob", "alice"), NOTHING) == money.get(("alice", "bob"), NOTHING) == NOTHING
    assert len(engine[0].keys) == 1
    assert "settled with 0 peers" in town.run("alice", "upkeep")
    assert f"-{owed}" in town.run("bob", "ledger", "alice")
    assert f"-{owed}" in town.run("alice", "ledger", town["bob"].pubkey[:16])


def test_a_chain_of_five_hops(town: Town, connect: Connect) -> None:
    chain = ["alice", "bob", "eve", "frank", "carol", "grace"]
    for name, other in (("eve", "frank"), ("frank", "carol")):
        town.follow(name, other)
        town.run(name, "upkeep")
    for name, next_hop in pairwise(chain[:-1]):
        town.route(name, "g.agent.grace", next_hop)
    author, before = Author(), town.money()
    event = author.event("a long way")
    price = town.price("grace", author, event)

    reply = town.pay("grace", author, event, fees=4 * FEE)

    assert isinstance(reply, Fulfill), reply
    moved = difference(town.money(), before)
    received = [moved[after, name][0] for name, after in pairwise(chain)]
    assert received == [price + left * FEE for left in (4, 3, 2, 1, 0)]


def test_a_packet_for_a_loop_ends(town: Town) -> None:
    """Bob, Eve, Frank and Bob again, each with a route that says: the next one knows."""
    town.follow("frank", "bob")
    town.run("frank", "upkeep")
    for name, next_hop in (("bob", "eve"), ("eve", "frank"), ("frank", "bob")):
        town.route(name, "g.agent.grace", next_hop)
    author, before = Author(), town.money()

    reply = town.pay("grace", author, author.event("round and round"), fees=50 * FEE)

    assert isinstance(reply, Reject)
    assert reply.code == "R02", "each hop takes a second of its thirty"
    assert town.money() == before


def difference(after: dict, before: dict) -> dict:
    """What has been added to each account."""
    changed = {
        key: tuple(new - old for new, old in zip(value, before.get(key, (0, 0, 0)), strict=True))
        for key, value in after.items()
    }
    return {key: value for key, value in changed.items() if any(value)}


@contextmanager
def forger(port: int) -> Iterator[None]:
    """Someone at an agent's place who fulfills whatever comes, with a preimage of nothing."""

    class Forger(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            body = encode(Fulfill(bytes(32)))
            self.send_response(200)
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", port), Forger)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


def test_all_six_agents_run(town: Town) -> None:
    assert all(town[name].is_running for name in NAMES)
