"""Forwarding: the document's agents in one process, joined by a wire that can be cut or forged."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from farthing.agent.audit import audit
from farthing.connector.arrival import decode
from farthing.connector.forwarding import make_onward_packet
from farthing.connector.incoming import IncomingPacket
from farthing.connector.peering import derived_token
from farthing.connector.requests import receive_packet
from farthing.context import Agent
from farthing.ilp.packet import (
    Code,
    Fulfill,
    Prepare,
    Reject,
    decode_prepare,
    decode_reply,
    encode,
)
from farthing.nostr.events import Event, public_key_of
from farthing.ports.http import HttpError
from farthing.ports.outbound import OutboundFailed, OutboundTimeout, Response
from farthing.store.ledger import Hold, Ledger, Peer, hash_token
from farthing.store.routes import Route
from farthing.store.sqlite import SqliteEngine
from farthing.store.table import Engine
from infra.costs.counting import CountingEngine
from infra.local.server.meter import LocalMeter
from tests.ilp.paying import code_of, expiry, note, packet
from tests.relay.world import ALICE, Clock, make_agent

FEE = 100
PAYER_TOKEN = "the-payer-shows-this-token-to-its-own-agent-0123"


class Wire:
    """Requests between agents, delivered at once."""

    def __init__(self) -> None:
        self.agents: dict[str, Agent] = {}
        self.cut: set[str] = set()
        self.late: set[str] = set()
        self.forged: set[str] = set()
        self.seen: list[str] = []

    def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Response:
        name = url.removeprefix("http://").removesuffix("/ilp")
        self.seen.append(name)
        if name in self.cut:
            raise OutboundFailed("nobody is there")
        if name in self.late:
            raise OutboundTimeout("no answer")
        if name in self.forged:
            return Response(200, encode(Fulfill(bytes(32))))
        lowered = {header.lower(): value for header, value in headers.items()}
        try:
            answer = receive_packet(self.agents[name], lowered, body)
        except HttpError as error:
            return Response(error.status, b"")
        return Response(answer.status, answer.body)


class Town:
    """Agents by name, who follow whom, and routes as a rebuild would write them."""

    def __init__(self, folder: Path) -> None:
        self.wire, self.clock, self.folder = Wire(), Clock(), folder
        self.engines: list[SqliteEngine] = []

    def agent(self, name: str) -> Agent:
        if name not in self.wire.agents:
            made = make_agent(
                self.engine(name), self.clock, secret_key=sha256(name.encode()).hexdigest(),
                price_per_byte=10, ilp_address=f"g.agent.{name}", forward_fee=FEE,
                forward_fee_ppm=0, relay_url=f"ws://{name}",
            )  # fmt: skip
            self.wire.agents[name] = replace(made, outbound=self.wire)
        return self.wire.agents[name]

    def engine(self, name: str) -> Engine:
        """What the agent of this name keeps everything in."""
        engine = SqliteEngine(self.folder / name, clock=self.clock)
        self.engines.append(engine)
        return engine

    def follow(self, name: str, *others: str) -> None:
        """Each of the others becomes a peer, and knows who sends."""
        for other in others:
            self._know(name, other)
            self._know(other, name)

    def _know(self, name: str, other: str) -> None:
        agent, peer = self.agent(name), self.agent(other)
        if agent.ledger.peer(other) is not None:
            return
        secret, key = bytes.fromhex(agent.settings.secret_key), peer.settings.pubkey
        token = derived_token(secret, key, key)
        agent.ledger.add_peer(
            Peer(other, hash_token(token), endpoint=f"http://{other}/ilp", pubkey=key)
        )

    def route(self, name: str, **next_hops: str) -> None:
        routes = [
            Route(f"g.agent.{target}", self.key(target), self.key(hop), FEE, 1)
            for target, hop in next_hops.items()
        ]
        self.agent(name).routes.replace(
            "first", routes, self.clock.now, shrink_percent=50, force=True
        )

    def key(self, name: str) -> str:
        return self.agent(name).settings.pubkey

    def pay(self, start: str, target: str, amount: int, **changes: object) -> Fulfill | Reject:
        """A stranger, peer of `start`, pays for a note at `target`."""
        agent = self.agent(start)
        if agent.ledger.peer("payer") is None:
            agent.ledger.add_peer(Peer("payer", hash_token(PAYER_TOKEN)))
        prepare = self.prepare(target, amount, **changes)
        headers = {
            "content-type": "application/octet-stream",
            "authorization": f"Bearer {PAYER_TOKEN}",
        }
        return decode_reply(receive_packet(agent, headers, encode(prepare)).body)

    def prepare(self, target: str, amount: int, **changes: object) -> Prepare:
        return packet(self.agent(target), self.note_to(target), amount=amount, **changes)

    @cache  # noqa: B019 - signed once: another signature would make another packet
    def note_to(self, target: str) -> Event:
        return note(f"to {target}")

    def price(self, target: str) -> int:
        return len(self.prepare(target, 0).data) * 10

    def money(self) -> dict[tuple[str, str], tuple[int, int, int]]:
        return {
            (name, peer.id): (balance.posted, balance.pending, balance.payable)
            for name, agent in self.wire.agents.items()
            for peer in agent.ledger.peers()
            if (balance := agent.ledger.balance(peer.id)) and any(
                (balance.posted, balance.pending, balance.payable)
            )
        }  # fmt: skip


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    """Alice follows Bob and Carol, Bob follows Eve and Frank, Carol follows Grace."""
    made = Town(tmp_path)
    made.follow("alice", "bob", "carol")
    made.follow("bob", "eve", "frank")
    made.follow("carol", "grace")
    made.route("alice", bob="bob", carol="carol", eve="bob", frank="bob", grace="carol")
    made.route("bob", eve="eve", frank="frank")
    made.route("carol", grace="grace")
    yield made
    for name, agent in made.wire.agents.items():
        assert audit(agent).differences == [], name
        assert list(agent.ledger.holds()) == []
    for engine in made.engines:
        engine.close()


def test_alice_pays_eves_relay_through_bob(town: Town) -> None:
    price = town.price("eve")

    reply = town.pay("alice", "eve", price + 2 * FEE)

    assert isinstance(reply, Fulfill), reply
    assert town.agent("eve").events.get(town.note_to("eve").id) is not None
    assert town.wire.seen == ["bob", "eve"]
    assert town.money() == {
        ("alice", "payer"): (price + 2 * FEE, 0, 0),
        ("alice", "bob"): (0, 0, price + FEE),
        ("bob", "alice"): (price + FEE, 0, 0),
        ("bob", "eve"): (0, 0, price),
        ("eve", "bob"): (price, 0, 0),
    }


def test_a_peer_with_an_address_below_ours_gets_its_packets(town: Town) -> None:
    alice = town.agent("alice")
    for peer in list(alice.ledger.peers()):
        if peer.id == "carol":
            alice.ledger.replace_peer(replace(peer, ilp_address="g.agent.alice.till"))

    amount = town.price("carol") + FEE
    reply = town.pay("alice", "carol", amount, destination="g.agent.alice.till.7")
    assert isinstance(reply, Reject), "Carol does not have this address"
    assert town.wire.seen == ["carol"]

    town.pay("alice", "bob", amount, destination="g.agent.alice.bob.7")  # its address by ILDCP
    assert town.wire.seen == ["carol", "bob"]


def test_what_no_peer_takes_below_our_address_is_for_us(town: Town) -> None:
    price = town.price("alice")
    for destination in ("g.agent.alice.nobody", "g.agent.alice.payer"):
        reply = town.pay("alice", "alice", price, destination=destination)
        assert isinstance(reply, Fulfill), reply
    assert town.wire.seen == []


def test_a_peer_whose_address_covers_ours_does_not_get_our_packets(town: Town) -> None:
    alice = town.agent("alice")
    for peer in list(alice.ledger.peers()):
        if peer.id == "bob":
            alice.ledger.replace_peer(replace(peer, ilp_address="g.agent"))

    reply = town.pay("alice", "alice", town.price("alice"), destination="g.agent.alice.desk")

    assert isinstance(reply, Fulfill), reply
    assert town.wire.seen == []


def test_a_followed_agent_cannot_claim_an_address_below_ours(town: Town) -> None:
    alice = town.agent("alice")
    for peer in list(alice.ledger.peers()):
        if peer.id == "carol":
            claimed = replace(peer, ilp_address="g.agent.alice.till", from_follows=True)
            alice.ledger.replace_peer(claimed)

    reply = town.pay("alice", "alice", town.price("alice"), destination="g.agent.alice.till")

    assert isinstance(reply, Fulfill), reply
    assert town.wire.seen == []


def test_a_repeat_is_answered_from_the_receipt(town: Town) -> None:
    amount = town.price("eve") + 2 * FEE
    first = town.pay("alice", "eve", amount)
    before = town.money()
    town.wire.seen.clear()

    assert town.pay("alice", "eve", amount) == first
    assert town.wire.seen == []
    assert town.money() == before


@pytest.mark.parametrize(("trouble", "code"), [("cut", "T01"), ("late", "R00"), ("forged", "F05")])
def test_trouble_with_the_next_hop_moves_no_money(town: Town, trouble: str, code: str) -> None:
    getattr(town.wire, trouble).add("bob")

    reply = town.pay("alice", "eve", town.price("eve") + 2 * FEE)

    assert isinstance(reply, Reject)
    assert reply.code == code
    assert reply.triggered_by == "g.agent.alice"
    assert town.money() == {}


def test_a_next_hop_that_does_not_know_us_tells_the_operator_what_to_do(
    town: Town, caplog: pytest.LogCaptureFixture
) -> None:
    town.agent("bob").ledger.remove_peer("alice")

    replies = [town.pay("alice", "eve", town.price("eve") + 2 * FEE) for _ in range(2)]

    remedy = f"run `farthing peers add NAME --pubkey {town.key('alice')}` on the peer's side"
    for reply in replies:
        assert isinstance(reply, Reject)
        assert (reply.code, remedy in reply.message) == ("T01", True)
    told = [record for record in caplog.records if record.msg == "a peer has no record of us"]
    assert [(each.peer, each.remedy) for each in told] == [("bob", remedy)]  # type: ignore[attr-defined]
    assert town.money() == {}


def test_codes_that_nobody_knows_are_one_metric(town: Town) -> None:
    meter = LocalMeter()

    class Stranger:
        code = "F04"

        def post(self, *_: object) -> Response:
            known = encode(Reject(Code.F00_BAD_REQUEST, "g.x", "no"))
            return Response(200, known.replace(b"F00", self.code.encode(), 1))

    alice, stranger = town.agent("alice"), Stranger()
    town.wire.agents["alice"] = replace(alice, meter=meter, outbound=stranger)  # type: ignore[arg-type]
    for stranger.code in ("F04", "F77", 'x"y', "T00"):
        reply = town.pay("alice", "eve", 10**4)
        assert isinstance(reply, Reject)
        assert reply.code == stranger.code, "the reject itself goes back as it came"
    rejected = {name: number for name, number in meter.totals().items() if "." in name}
    assert rejected == {
        "PacketsRejected.F04": 1, "PacketsRejected.Other": 2, "PacketsRejected.T00": 1
    }  # fmt: skip


def test_a_reject_comes_back_as_it_was_made(town: Town) -> None:
    reply = town.pay("alice", "eve", town.price("eve") + 2 * FEE - 1)

    assert isinstance(reply, Reject)
    assert (reply.code, reply.triggered_by) == ("F04", "g.agent.eve")
    assert b"price" in reply.data
    assert town.money() == {}


def test_what_has_no_route_is_unreachable(town: Town) -> None:
    for destination in ("g.agent.nobody", "g.agent.evelyn", "peer.config", "test.agent.eve"):
        reply = town.pay("alice", "eve", 10**6, destination=destination)
        assert isinstance(reply, Reject)
        assert reply.code == "F02", destination


def test_the_longest_prefix_wins_on_segment_boundaries(town: Town) -> None:
    town.pay("alice", "grace", 10**6, destination="g.agent.grace.relay.one")
    assert town.wire.seen[0] == "carol"


@pytest.mark.parametrize(
    ("from_follows", "claimed", "owner", "taken_by"),
    [
        (True, "g.agent.eve.shop", "eve", "bob"),  # as in BGP: the longer claim would take it
        (True, "g.agent.eve", "eve", "bob"),
        (True, "g.agent.eve", "mallory", "mallory"),  # the table knows it for the owner
        (False, "g.agent.eve.shop", "eve", "mallory"),  # the operator's own word
    ],
)
def test_what_a_followed_agent_claims_counts_as_the_table_says(
    town: Town, from_follows: bool, claimed: str, owner: str, taken_by: str
) -> None:
    alice = town.agent("alice")
    town.follow("alice", "mallory")
    known = alice.ledger.peer("mallory")
    assert known is not None
    alice.ledger.replace_peer(replace(known, ilp_address=claimed, from_follows=from_follows))
    way = Route("g.agent.eve", town.key(owner), town.key("bob"), FEE, 2)
    alice.routes.replace("second", [way], town.clock.now, shrink_percent=100, force=True)

    town.pay("alice", "eve", 10**6, destination="g.agent.eve.shop.till")

    assert town.wire.seen[0] == taken_by


def test_a_packet_never_goes_back_where_it_came_from(town: Town) -> None:
    town.route("bob", eve="alice")

    reply = town.pay("alice", "eve", 10**6)

    assert isinstance(reply, Reject)
    assert (reply.code, reply.triggered_by) == ("F02", "g.agent.bob")
    assert town.money() == {}


def test_a_packet_in_a_loop_is_rejected_and_moves_no_money(town: Town) -> None:
    town.follow("eve", "alice")
    town.route("bob", grace="eve")
    town.route("eve", grace="alice")
    town.route("alice", grace="bob")

    reply = town.pay("alice", "grace", 10**6)

    assert isinstance(reply, Reject)
    assert reply.code in ("R01", "R02")
    assert len(town.wire.seen) < 100
    assert town.money() == {}


def test_a_chain_of_five_hops(town: Town) -> None:
    chain = ["alice", "h1", "h2", "h3", "h4", "end"]
    for one, next_one in pairwise(chain):
        town.follow(one, next_one)
        town.route(one, end=next_one)
    price = town.price("end")

    reply = town.pay("alice", "end", price + 5 * FEE)

    assert isinstance(reply, Fulfill), reply
    assert town.agent("end").ledger.balance("h4").posted == price


@pytest.mark.parametrize(("seconds", "code"), [(1.5, "R02"), (0.05, "R02"), (-1, "R00")])
def test_a_packet_needs_time_to_be_forwarded(town: Town, seconds: float, code: str) -> None:
    until = expiry(town.agent("alice"), seconds)
    reply = town.pay("alice", "eve", 10**6, expires_at=until)

    assert isinstance(reply, Reject)
    assert reply.code == code


def test_a_fee_that_eats_the_amount_is_refused(town: Town) -> None:
    reply = town.pay("alice", "eve", FEE)
    assert isinstance(reply, Reject)
    assert reply.code == "R01"


def test_the_balance_limit_holds_for_what_is_forwarded(town: Town) -> None:
    alice = town.agent("alice")
    alice.ledger.add_peer(Peer("payer", hash_token(PAYER_TOKEN), max_balance=1000))

    reply = town.pay("alice", "eve", 1001)

    assert isinstance(reply, Reject)
    assert reply.code == "T04"


def test_the_rate_holds_for_what_is_forwarded(town: Town) -> None:
    alice = town.agent("alice")
    slow = replace(alice, settings=replace(alice.settings, packets_per_minute=2))
    town.wire.agents["alice"] = slow
    replies = [town.pay("alice", "eve", 10 + number) for number in range(3)]
    assert [reply.code for reply in replies if isinstance(reply, Reject)] == ["R01", "R01", "T05"]
    town.clock.now += 60
    amount = town.price("eve") + 2 * FEE
    assert all(isinstance(town.pay("alice", "eve", amount), Fulfill) for _ in range(2))
    repeat = town.pay("alice", "eve", amount)
    assert isinstance(repeat, Reject)
    assert repeat.code == "T05", "a repeat counts as well"


def test_the_packet_maximum_holds_for_what_is_forwarded(town: Town) -> None:
    alice = town.agent("alice")
    alice.ledger.add_peer(Peer("payer", hash_token(PAYER_TOKEN), max_packet=1000))
    reply = town.pay("alice", "eve", 1001)
    assert isinstance(reply, Reject)
    assert reply.code == "F08"
    assert reply.data == (1001).to_bytes(8) + (1000).to_bytes(8)
    assert town.wire.seen == []


def test_a_packet_without_an_amount_goes_through_and_costs_nothing(town: Town) -> None:
    """Whoever is at the end may want nothing; nobody on the way takes a fee of nothing."""
    eve = town.agent("eve")
    town.wire.agents["eve"] = replace(eve, settings=replace(eve.settings, price_per_byte=0))
    assert isinstance(town.pay("alice", "eve", 0), Fulfill)
    assert town.wire.seen == ["bob", "eve"]
    assert town.money() == {}
    assert list(town.agent("alice").ledger.receipts("payer")) == []
    assert list(town.agent("bob").ledger.receipts("alice")) == []


def test_a_second_payment_for_a_stored_event_is_charged_nowhere(town: Town) -> None:
    """Otherwise the connectors on the way would charge for it, and eve's books would not have
    it."""
    enough = town.price("eve") + 2 * FEE
    assert isinstance(town.pay("alice", "eve", enough), Fulfill)
    before = town.money()
    assert code_of(town.pay("alice", "eve", enough + 100)) == "F99"
    assert town.money() == before


@pytest.mark.parametrize("alone", [False, True])
def test_packets_without_an_amount_have_a_rate_of_their_own(town: Town, alone: bool) -> None:
    alice = town.agent("alice")
    slow = replace(alice.settings, free_packets_per_minute=2)
    town.wire.agents["alice"] = replace(alice, settings=slow, alone=alone, _parts={})
    free = [town.pay("alice", "eve", 0) for _ in range(3)]
    assert [reply.code for reply in free if isinstance(reply, Reject)] == ["F04", "F04", "T05"]
    assert isinstance(town.pay("alice", "eve", town.price("eve") + 2 * FEE), Fulfill)
    town.clock.now += 60
    assert code_of(town.pay("alice", "eve", 0)) == "F04"


@pytest.mark.parametrize(("amount", "fee"), [(1, None), (2, 1), (999, 1), (1000, 1), (2500, 2)])
def test_there_is_a_least_fee(town: Town, amount: int, fee: int | None) -> None:
    bob = town.agent("bob")
    cheap = replace(bob.settings, forward_fee=0, forward_fee_ppm=1000)
    town.wire.agents["bob"] = replace(bob, settings=cheap, _parts={})
    before = Wire.post
    sent: list[int] = []

    def record(wire: Wire, url: str, headers: Mapping[str, str], body: bytes, time: float) -> Any:
        if "eve" in url:
            sent.append(decode_prepare(body).amount)
        return before(wire, url, headers, body, time)

    Wire.post = record  # type: ignore[method-assign]
    try:
        reply = town.pay("bob", "eve", amount)
    finally:
        Wire.post = before  # type: ignore[method-assign]
    assert isinstance(reply, Reject)
    assert reply.code == ("R01" if fee is None else "F04")
    assert sent == ([] if fee is None else [amount - fee])


def test_a_forwarded_packet_without_an_amount_costs_one_write(town: Town) -> None:
    alice = town.agent("alice")
    counting = CountingEngine(alice.engine)
    town.wire.agents["alice"] = replace(alice, engine=counting, _parts={})
    eve = town.agent("eve")
    town.wire.agents["eve"] = replace(eve, settings=replace(eve.settings, price_per_byte=0))
    town.pay("alice", "eve", 0)
    counting.reset()
    assert isinstance(town.pay("alice", "eve", 0), Fulfill)
    assert counting.reset().write_units == 1  # the rate


def test_strangers_cannot_fill_the_memory_of_routes(town: Town) -> None:
    alice = town.agent("alice")
    for number in range(10_000):
        alice.routes.lookup(f"g.agent.eve.{number}")
    assert len(alice.routes._routes) <= 4096


def test_an_inactive_peer_neither_sends_nor_receives(town: Town) -> None:
    bob = town.agent("alice").ledger.peer("bob")
    assert bob is not None
    town.agent("alice").ledger.remove_peer("bob")
    town.agent("alice").ledger.add_peer(replace(bob, active=False))

    reply = town.pay("alice", "eve", 10**6)

    assert isinstance(reply, Reject)
    assert reply.code == "F02"


def test_the_onward_packet_has_less_time_and_the_same_data(town: Town) -> None:
    alice = town.agent("alice")
    prepare = town.prepare("eve", 10_000)
    sent = IncomingPacket(Peer("payer", "x"), encode(prepare), alice.now_ms)
    decode(alice, sent)
    make_onward_packet(alice, sent)
    onward = sent.onward

    assert (onward.condition, onward.data) == (prepare.condition, prepare.data)
    assert onward.amount == 10_000 - FEE
    left = (prepare.expires_at - onward.expires_at).total_seconds()
    assert left == 1.0


def test_a_hold_that_a_crash_left_is_swept(town: Town) -> None:
    alice = town.agent("alice")
    hold = Hold("bob", "ab" * 32, 500, town.clock.now * 1000 + 5000)
    assert alice.ledger.hold(hold, 10**6)
    assert alice.ledger.balance("bob").pending == 500

    town.clock.now += 6
    assert alice.ledger.release_expired(alice.now_ms) == 1
    assert alice.ledger.balance("bob").pending == 0


@pytest.mark.parametrize("seconds", [5, 30, 10**4, 10**9])
def test_nothing_is_held_for_longer_than_the_next_hop_is_waited_for(
    town: Town, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    """A packet may say that it expires in thirty years, and we may crash while it is under way."""
    town.follow("alice", "bob")
    town.route("alice", eve="bob")

    def crash(*_: object) -> Response:
        raise KeyboardInterrupt

    alice = town.agent("alice")
    town.wire.agents["alice"] = replace(alice, outbound=type("Crash", (), {"post": crash})())
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "release", lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            town.pay("alice", "eve", 10**6, expires_at=expiry(alice, seconds))
    assert alice.ledger.balance("payer").pending == 10**6

    town.clock.now += min(seconds, 31)
    assert alice.ledger.release_expired(alice.now_ms) == 1
    assert alice.ledger.balance("payer").pending == 0


def test_only_alice_can_make_alices_token() -> None:
    one, other = ALICE, sha256(b"other").digest()
    key, other_key = public_key_of(one), public_key_of(other)
    assert derived_token(one, other_key, key) == derived_token(other, key, key)
    assert derived_token(one, other_key, key) != derived_token(one, other_key, other_key)
