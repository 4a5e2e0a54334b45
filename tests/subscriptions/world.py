"""What the tests of paid subscriptions stand on: a subscriber that sends messages in packets, and
events that are stored and numbered at once."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from farthing.btp_nips.codec import decode, decode_entry
from farthing.btp_nips.codec import encode as envelope
from farthing.btp_nips.identity import Owner
from farthing.btp_nips.messages import (
    Close,
    Closed,
    Count,
    Eose,
    EventMessage,
    Message,
    Metadata,
    Notice,
    Payment,
    Req,
)
from farthing.btp_nips.models import Model
from farthing.connector import steps as connector
from farthing.connector.subscriptions.pushing import deliver
from farthing.context import Agent
from farthing.ilp.condition import author_fulfillment, condition_of
from farthing.ilp.packet import Fulfill, Prepare, Reject, decode_prepare
from farthing.ilp.packet import encode as encode_packet
from farthing.ilp.tokens import new_token, seal
from farthing.nostr.events import Event, public_key_of
from farthing.nostr.filters import Filter, parse_filter
from farthing.ports.outbound import OutboundFailed, Response
from farthing.relay.fan_out import push_changes
from farthing.relay.sequence import number_events
from farthing.store.changes import Arrival, Change
from farthing.store.ledger import Peer, hash_token
from farthing.store.outgoing_subscriptions import Outgoing
from farthing.store.payment import OWNER
from farthing.store.table import Engine
from tests.ilp.paying import PAYER, expiry, paid_agent, send
from tests.relay.world import BOB, START, Clock, signed

SUBSCRIBER = b"\x05" * 32
NOTES = {"kinds": [1]}

_numbers = itertools.count(1)


def note(**changes: Any) -> Event:
    """A note that differs from all others."""
    number = next(_numbers)
    given = {"content": f"note {number}", "created_at": START - 10_000 + number}
    return signed(BOB, **{**given, **changes})


def store(agent: Agent, *events: Event) -> list[Event]:
    """Stored and numbered, in this order."""
    for event in events:
        agent.events.save(event, payment=OWNER)
        number_events(agent, [Arrival(event.id, event.pubkey, event.kind)])
    return list(events)


def store_notes(agent: Agent, number: int, **changes: Any) -> list[Event]:
    return store(agent, *(note(**changes) for _ in range(number)))


@dataclass
class Answer:
    """A Fulfill's data, read."""

    fields: dict[str, Any]
    fulfill: Fulfill

    @property
    def messages(self) -> list[Message]:
        return [decode_entry(entry) for entry in self.fields["messages"]]

    @property
    def events(self) -> list[str]:
        """The ids of the events, in order."""
        return [each.event.id for each in self.messages if isinstance(each, EventMessage)]

    @property
    def names(self) -> list[str]:
        """What the messages are, in order."""
        return [_NAMES[type(each)] for each in self.messages]

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]


_NAMES = {EventMessage: "EVENT", Eose: "EOSE", Notice: "NOTICE", Closed: "CLOSED"}


@dataclass
class Subscriber:
    """One who sends messages to a relay by way of a peer."""

    agent: Agent
    secret: bytes = SUBSCRIBER
    peer: Peer = PAYER
    _tick: "itertools.count[int]" = field(default_factory=itertools.count)

    @property
    def pubkey(self) -> str:
        return public_key_of(self.secret)

    def metadata(self, **fields: Any) -> Metadata:
        return Metadata(**{"timestamp": self.agent.now, "sender": self.pubkey, **fields})

    def packet(self, message: Message, amount: int = 0, **changes: Any) -> Prepare:
        """The packet of a message. Two equal messages of one second differ by their priority."""
        data = changes.pop("data", None) or envelope(message)
        relay = bytes.fromhex(self.agent.settings.pubkey)
        fields = {
            "amount": amount,
            "expires_at": expiry(self.agent),
            "condition": condition_of(author_fulfillment(self.secret, relay, data)),
            "destination": self.agent.settings.own_ilp_address,
            "data": data,
        }
        return Prepare(**{**fields, **changes})

    def req(
        self,
        id: str = "s1",
        filters: Iterable[dict[str, Any]] = (),
        *,
        model: Model | None = None,
        ceilings: Any = None,
        token: str | None = None,
        **metadata: Any,
    ) -> Req:
        parsed: tuple[Filter, ...] = tuple(parse_filter(each) for each in filters)
        payment = Payment(0, "USD", model=model, ceilings=ceilings)
        metadata.setdefault("priority", next(self._tick) % 256)
        return Req(id, parsed, payment, self.metadata(**metadata), token)

    def send(self, message: Message, amount: int = 0) -> Fulfill | Reject:
        return send(self.agent, self.packet(message, amount), self.peer)

    def ask(self, message: Message, amount: int = 0) -> Answer:
        reply = self.send(message, amount)
        assert isinstance(reply, Fulfill), reply
        return Answer(orjson.loads(reply.data), reply)

    def subscribe(
        self,
        amount: int,
        id: str = "s1",
        filters: Sequence[dict[str, Any]] = (NOTES,),
        **given: Any,
    ) -> Answer:
        return self.ask(self.req(id, filters, **given), amount)

    def pull(self, most: int = 50, id: str = "s1", **metadata: Any) -> Answer:
        return self.ask(self.req(id, pull=most, **metadata))

    def status(self, id: str = "s1") -> Answer:
        return self.ask(self.req(id))

    def top_up(self, amount: int, id: str = "s1", **metadata: Any) -> Answer:
        return self.ask(self.req(id, **metadata), amount)

    def close(self, id: str = "s1", **metadata: Any) -> Answer:
        return self.ask(Close(id, Payment(), self.metadata(**metadata)))

    def count(self, *filters: dict[str, Any]) -> Answer:
        parsed = tuple(parse_filter(each) for each in filters)
        return self.ask(Count("c", parsed, Payment(), self.metadata()))


def refusal(reply: Fulfill | Reject) -> tuple[str, str]:
    """(code, error name) of a reject."""
    assert isinstance(reply, Reject), reply
    return reply.code, orjson.loads(reply.data)["error"]


def ids(events: Iterable[Event]) -> list[str]:
    return [event.id for event in events]


class Wire:
    """The network of a test: a packet for an endpoint goes to the agent that is registered there,
    or meets what a test has put in its way."""

    def __init__(self) -> None:
        self._agents: dict[str, tuple[Agent, Peer]] = {}
        self.seen: list[tuple[str, Prepare]] = []
        self.before: Callable[[str, Prepare], Reject | None] = lambda *_: None
        self.after: Callable[[str, Prepare], None] = lambda *_: None
        self.order: Callable[[int], Iterable[int]] = range  # of packets that go at once
        self.together: list[int] = []  # how many packets went at once

    def connect(self, url: str, agent: Agent, peer: Peer) -> None:
        """Packets for the URL reach the agent, from this peer of its."""
        self._agents[url] = agent, peer

    def post(self, url: str, headers: object, body: bytes, timeout: float) -> Response:
        if url not in self._agents:
            raise OutboundFailed("nobody is there")
        agent, peer = self._agents[url]
        prepare = decode_prepare(body)
        self.seen.append((url, prepare))
        refused = self.before(url, prepare)
        if refused is not None:
            return Response(200, encode_packet(refused))
        reply = connector.handle(agent, peer, body)
        self.after(url, prepare)
        return Response(200, reply)

    def side_by_side(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        """One after the other, in an order that a test may choose."""
        found: dict[int, Any] = {}
        for number in self.order(len(calls)):
            found[number] = calls[number]()
        self.together.append(len(calls))
        return [found[number] for number in range(len(calls))]

    def call_back(self, url: str, headers: object, body: bytes, seconds: float) -> None:
        pass


class QueuedWakes:
    """Wakes that wait until a test has them served."""

    def __init__(self) -> None:
        self.waiting: dict[tuple[str, str], float] = {}

    def wake(self, owner: str, subscription_id: str, delay: float = 0.0) -> None:
        known = self.waiting.get((owner, subscription_id), delay)
        self.waiting[owner, subscription_id] = min(known, delay)

    def serve(self, agent: Agent, *, also_later: bool = False) -> None:
        """Deliver to all that are woken, and to those whom that wakes. For a later wake the clock
        moves on."""
        assert isinstance(agent.clock, Clock)
        while ready := [key for key, delay in self.waiting.items() if also_later or not delay]:
            for owner, subscription_id in ready:
                delay = self.waiting.pop((owner, subscription_id))
                agent.clock.now += delay + 0.001 if delay else 0  # no timer rings early
                deliver(agent, Owner(owner), subscription_id)


def joined(
    engine: Engine, clock: Clock, wire: Wire, name: str, secret: bytes, **settings: Any
) -> Agent:
    """An agent of its own on the wire, with wakes that a test serves."""
    agent = paid_agent(engine, clock, secret_key=secret.hex(), ilp_address=f"g.{name}", **settings)
    return replace(agent, outbound=wire, wakes=QueuedWakes())


def introduce(one: Agent, name: str, other: Agent, wire: Wire) -> Peer:
    """Have `one` know `other` as a peer, with a way to it. The peer, as `one` knows it."""
    url = f"https://{one.settings.own_ilp_address}.to.{name}.example/ilp"
    sealed = seal(bytes.fromhex(one.settings.secret_key), name, b"token-" * 8)
    peer = Peer(
        name, hash_token(new_token()), ilp_address=other.settings.own_ilp_address, endpoint=url,
        pubkey=other.settings.pubkey, outgoing_token=sealed,
    )  # fmt: skip
    one.ledger.add_peer(peer)
    return peer


def befriend(one: Agent, other: Agent, wire: Wire) -> tuple[Peer, Peer]:
    """Both know each other. The other as `one` knows it, and `one` as the other does."""
    names = [agent.settings.own_ilp_address.removeprefix("g.") for agent in (one, other)]
    there = introduce(one, names[1], other, wire)
    back = introduce(other, names[0], one, wire)
    wire.connect(there.endpoint, other, back)
    wire.connect(back.endpoint, one, there)
    return there, back


def wakes_of(agent: Agent) -> QueuedWakes:
    assert isinstance(agent.wakes, QueuedWakes)
    return agent.wakes


def publish(agent: Agent, *events: Event) -> list[Event]:
    """Stored, numbered, and brought to those who are to be woken."""
    for event in store(agent, *events):
        number = agent.changes.numbers_of([event.id]).get(event.id)
        assert number is not None
        push_changes(agent, [Change(number, event.id, event.pubkey, event.kind)])
    return list(events)


def inbox(agent: Agent, relay: Agent, id: str = "s1") -> list[Message]:
    waiting = agent.outgoing_subscriptions.inbox(relay.settings.pubkey, id)
    return [decode(each.data) for each in waiting]


def received(agent: Agent, relay: Agent, id: str = "s1") -> list[str]:
    """The ids of the events in the inbox, in order."""
    return [each.event.id for each in inbox(agent, relay, id) if isinstance(each, EventMessage)]


def expect(agent: Agent, relay: Agent, id: str = "s1") -> None:
    agent.outgoing_subscriptions.note(Outgoing(relay.settings.pubkey, id), agent.now + 3600)
