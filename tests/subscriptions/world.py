"""What the tests of paid subscriptions stand on: a subscriber that sends messages in packets, and
events that are stored and numbered at once."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from farthing.btp_nips.codec import decode_entry
from farthing.btp_nips.codec import encode as envelope
from farthing.btp_nips.messages import (
    Close,
    Closed,
    Count,
    Eose,
    EventMessage,
    Message,
    Metadata,
    Model,
    Notice,
    Payment,
    Req,
)
from farthing.context import Agent
from farthing.ilp.condition import author_fulfillment, condition_of
from farthing.ilp.packet import Fulfill, Prepare, Reject
from farthing.nostr.events import Event, public_key_of
from farthing.nostr.filters import Filter, parse_filter
from farthing.relay.sequence import number_events
from farthing.store.changes import Arrival
from farthing.store.ledger import Peer
from farthing.store.payment import OWNER
from tests.ilp.paying import PAYER, expiry, send
from tests.relay.world import BOB, START, signed

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
