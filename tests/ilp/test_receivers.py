"""The seam for receivers: what the connector does for every one of them, shown with two that are
made up. One is paid into a jar by address; one answers questions that cost nothing."""

import hmac
from dataclasses import replace
from typing import Any, Self

import pytest

from farthing.agent.audit import audit
from farthing.connector import receivers
from farthing.connector.incoming import IncomingPacket
from farthing.connector.purchase import Purchase, Receiver
from farthing.context import Agent
from farthing.ilp.condition import Scheme, condition_of
from farthing.ilp.packet import Fulfill, Prepare, Reject
from farthing.ilp.reject import RefusedByReceiver, Rejected, Unreachable
from farthing.store.ledger import Peer
from farthing.store.receipts import Stored
from farthing.store.table import Absent, Add, Item, Put, StoreError, Table, TransactWrite
from tests.ilp.paying import PAYER, assert_fulfilled, code_of, dump, note, packet, pay, posted, send
from tests.store.faulty import Fault, FaultyEngine, nth

SECRET = b"known to payer and receiver"
JAR = ("jar", "jar")


def jar_fulfillment(data: bytes) -> bytes:
    return hmac.digest(SECRET, data, "sha256")


class Jar(Purchase):
    """Takes any amount; the data is the payer's own. The answer is what the jar holds by then."""

    is_revenue = False
    after = 0
    again = 0

    @classmethod
    def read(cls, agent: Agent, packet: IncomingPacket) -> Self:
        if packet.prepare.destination.endswith(".lid"):
            raise Unreachable("the jar has no lid")
        return cls(agent, packet)

    @property
    def purpose(self) -> Stored:
        return Stored("", 20001, len(self.prepare.data))

    def check(self) -> None:
        if self.prepare.data == b"full":
            raise RefusedByReceiver("the jar is full", b"\x01\x02")

    def find_fulfillment(self) -> tuple[Scheme, bytes] | None:
        fulfillment = jar_fulfillment(self.prepare.data)
        matches = condition_of(fulfillment) == self.prepare.condition
        return (Scheme.QUOTE, fulfillment) if matches else None

    def writes(self) -> list[TransactWrite]:
        return [
            Add(Table.LEDGER, *JAR, {"coins": self.prepare.amount}),
            Put(Table.LEDGER, "slip", self.prepare.data.decode(), {}, Absent()),
        ]

    def refusal(self, current: Any) -> Rejected:
        return RefusedByReceiver("this slip is used up")

    def after_commit(self) -> None:
        type(self).after += 1

    def after_repeat(self) -> None:
        type(self).again += 1

    def answer(self) -> bytes:
        return str(coins(self.agent)).encode()


def coins(agent: Agent) -> int:
    item: Item = agent.engine.get(Table.LEDGER, *JAR) or {"coins": 0}
    number: int = item["coins"]
    return number


@pytest.fixture(autouse=True)
def with_jar(monkeypatch: pytest.MonkeyPatch) -> None:
    jar = Receiver("jar", Jar.read, segment="jar")
    monkeypatch.setattr(receivers, "RECEIVERS", (jar, *receivers.RECEIVERS))
    monkeypatch.setattr(Jar, "after", 0)
    monkeypatch.setattr(Jar, "again", 0)


def coin(agent: Agent, data: bytes, amount: int, **changes: Any) -> Prepare:
    fields = {
        "destination": f"{agent.settings.own_ilp_address}.jar",
        "condition": condition_of(jar_fulfillment(data)),
        **changes,
    }
    return packet(agent, note(), data=data, amount=amount, **fields)


def test_a_purchase_and_its_payment_are_one(either: Agent) -> None:
    prepare = coin(either, b"one", 70)
    assert send(either, prepare) == Fulfill(jar_fulfillment(b"one"), b"70")
    assert (coins(either), posted(either)) == (70, 70)
    (receipt,) = either.ledger.receipts(PAYER.id)
    assert (receipt.amount, receipt.scheme) == (70, "quote")
    assert audit(either).differences == []
    assert (Jar.after, Jar.again) == (1, 0)


def test_a_repeat_buys_nothing_and_is_answered_from_the_present_state(either: Agent) -> None:
    first = coin(either, b"one", 70)
    send(either, first)
    send(either, coin(either, b"two", 5))
    assert send(either, first) == Fulfill(jar_fulfillment(b"one"), b"75")
    assert (coins(either), posted(either)) == (75, 75)
    assert (Jar.after, Jar.again) == (2, 1)


@pytest.mark.parametrize("fault", [Fault(StoreError, after=True), Fault(StoreError)])
def test_a_lost_answer_of_the_store_is_a_repeat(agent: Agent, fault: Fault) -> None:
    prepare = coin(agent, b"one", 70)
    engine = FaultyEngine(agent.engine, nth(0, ["transact"], fault))
    faulty = Agent(agent.settings, engine, agent.connections, clock=agent.clock)
    assert code_of(send(faulty, prepare)) == ("fulfilled" if fault.after else "T00")
    assert_fulfilled(send(faulty, prepare), prepare)
    assert (coins(agent), posted(agent)) == (70, 70)


def test_receivers_reject_with_codes_and_data_of_their_own(agent: Agent) -> None:
    before = dump(agent.engine)
    full = send(agent, coin(agent, b"full", 1))
    assert isinstance(full, Reject)
    assert (full.code, full.data, full.triggered_by) == (
        "F99",
        b"\x01\x02",
        agent.settings.own_ilp_address,
    )
    lid = f"{agent.settings.own_ilp_address}.jar.lid"
    assert code_of(send(agent, coin(agent, b"x", 1, destination=lid))) == "F02"
    assert code_of(send(agent, coin(agent, b"x", 1, condition=bytes(32)))) == "F05"
    assert dump(agent.engine) == before


def test_writes_of_a_receiver_that_do_not_hold_take_no_money(either: Agent) -> None:
    send(either, coin(either, b"one", 70))
    other = Peer("other", "0" * 64)
    either.ledger.add_peer(other)
    reply = send(either, coin(either, b"one", 70), other)
    assert isinstance(reply, Reject)
    assert (reply.code, reply.message) == ("F99", "this slip is used up")
    assert (coins(either), posted(either, other)) == (70, 0)


def test_the_balance_limit_holds_for_every_receiver(agent_with: Any) -> None:
    agent = agent_with(max_balance=100)
    before = dump(agent.engine)
    assert code_of(send(agent, coin(agent, b"one", 101))) == "T04"
    assert dump(agent.engine) == before


def test_what_is_paid_in_advance_is_no_revenue(agent: Agent) -> None:
    send(agent, coin(agent, b"one", 70))
    assert "Revenue" not in agent.meter.counts  # type: ignore[attr-defined]


def test_other_packets_go_to_the_receivers_behind(agent: Agent) -> None:
    assert isinstance(pay(agent, note()), Fulfill)
    assert coins(agent) == 0


@pytest.mark.parametrize(
    ("behind", "data", "expected"),
    [
        ("", b"id: aaaa", "TOON event"),
        ("", b"", "TOON event"),
        ("", b"\n{}", "TOON event"),
        ("", b"\x01\x02\x00\x00", "BTP-NIPs envelope"),
        ("", b"\x1f", "BTP-NIPs envelope"),  # of a version that we do not know
        ("", b"event_id: a", "Aether event"),
        (".purse", b"id: aaaa", "purse"),
        (".purse.nonsense", b"\x01", "purse"),
        (".purses", b"id: aaaa", "TOON event"),
        (".jar.of.honey", b"id: aaaa", "jar"),
    ],
)
def test_the_first_receiver_that_recognises_a_packet_takes_it(
    agent: Agent, behind: str, data: bytes, expected: str
) -> None:
    own = agent.settings.own_ilp_address
    prepare = packet(agent, note(), destination=own + behind, data=data)

    chosen = receivers.choose(agent, prepare)

    assert chosen is not None and chosen.name == expected


def test_an_agent_without_aether_recognises_none_of_its_events(agent: Agent) -> None:
    without = replace(agent, settings=replace(agent.settings, aether=False))
    prepare = packet(agent, note(), data=b"event_id: a")

    chosen = receivers.choose(without, prepare)

    assert chosen is not None and chosen.name == "TOON event"
