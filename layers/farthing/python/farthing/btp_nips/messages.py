"""The messages that envelopes carry, as values. `codec` reads and writes them."""

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Final, NamedTuple

from farthing.btp_nips.models import Delivery as Delivery
from farthing.btp_nips.models import Model
from farthing.btp_nips.positions import Position
from farthing.nostr.events import Event
from farthing.nostr.filters import Filter

PRIORITY_MAX: Final = 255
PULL_MAX: Final = 50
HOPS_MAX: Final = 3
PATH_MAX: Final = 16
AMOUNT_MAX: Final = 2**64 - 1
CHALLENGE_LENGTH: Final = 32


class MessageType(IntEnum):
    EVENT = 1
    REQ = 2
    CLOSE = 3
    NOTICE = 4
    EOSE = 5
    OK = 6
    AUTH = 7
    COUNT = 8
    CLOSED = 9


class Purpose(StrEnum):
    EVENT_PUBLISH = "event_publish"
    SUBSCRIPTION = "subscription"
    RELAY_FEE = "relay_fee"
    AGENT_FEE = "agent_fee"
    CONTENT_PURCHASE = "content_purchase"
    TIP = "tip"


class Ceilings(NamedTuple):
    """The most that a client wants to pay, from `payment.feeSchedule`."""

    base_relay_fee: int | None = None
    event_fee: int | None = None


class Payment(NamedTuple):
    """The sender's statement of the payment. Only the received amount counts, not this
    statement."""

    amount: int = 0
    currency: str = ""
    purpose: Purpose | None = None
    model: Model | None = None
    ceilings: Ceilings | None = None


class Propagation(NamedTuple):
    """Over how many relays a subscription may be passed on, and the budget for all of them."""

    hops: int
    budget: int


class Metadata(NamedTuple):
    """`delivery` is None if the message does not name one: a new subscription is then delivered by
    pull, and an existing one keeps its way of delivery."""

    timestamp: int
    ttl: int | None = None
    priority: int | None = None
    sender: str | None = None  # x-only key
    delivery: Delivery | None = None
    reply_to: str | None = None  # ILP address
    pull: int | None = None
    after: Position | None = None
    window: int | None = None
    propagate: Propagation | None = None
    path: tuple[str, ...] = ()  # keys of the relays that passed the REQ on
    origin: str | None = None
    position: Position | None = None  # of a message to a subscriber


class Req(NamedTuple):
    subscription_id: str
    filters: tuple[Filter, ...]
    payment: Payment
    metadata: Metadata
    resumption_token: str | None = None


class Close(NamedTuple):
    subscription_id: str
    payment: Payment
    metadata: Metadata


class Count(NamedTuple):
    subscription_id: str
    filters: tuple[Filter, ...]
    payment: Payment
    metadata: Metadata


class EventMessage(NamedTuple):
    """A publish, or the delivery of an event to a subscriber. Its signature is not checked yet."""

    event: Event
    payment: Payment
    metadata: Metadata
    subscription_id: str | None = None


class Notice(NamedTuple):
    message: str
    payment: Payment
    metadata: Metadata
    subscription_id: str | None = None


class Eose(NamedTuple):
    subscription_id: str
    payment: Payment
    metadata: Metadata
    event_count: int | None = None
    resumption_token: str | None = None
    credit: int | None = None


class Ok(NamedTuple):
    event_id: str
    accepted: bool
    message: str
    payment: Payment
    metadata: Metadata


@dataclass(frozen=True, slots=True)
class Auth:
    """A challenge to prove an address: only the subscriber's key can fulfil its packet."""

    subscription_id: str
    challenge: bytes = field(repr=False)
    payment: Payment
    metadata: Metadata


class Closed(NamedTuple):
    subscription_id: str
    reason: str
    payment: Payment
    metadata: Metadata


Message = Req | Close | Count | EventMessage | Notice | Eose | Ok | Auth | Closed


def delivered_for(message: Message) -> tuple[str, str] | None:
    """The (relay key, subscription id) in a message from a relay to its subscriber, else None.

    An EVENT without a subscription is a publish. An EVENT with one is a delivery only if this agent
    has opened that subscription.
    """
    if isinstance(message, Req | Close | Count | Ok):
        return None
    if message.metadata.sender is None or message.subscription_id is None:
        return None
    return message.metadata.sender, message.subscription_id
