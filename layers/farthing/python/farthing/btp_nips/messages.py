"""The messages that envelopes carry, as values. `codec` reads and writes them."""

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Final

from farthing.btp_nips.positions import Position
from farthing.nostr.events import Event
from farthing.nostr.filters import Filter

TTL_MIN: Final = 60
TTL_MAX: Final = 86400
PRIORITY_MAX: Final = 255
PULL_MAX: Final = 50
WINDOW_MAX: Final = 10
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


class Model(StrEnum):
    """How a subscription is paid for."""

    FREE = "free"
    ONE_TIME = "one_time"
    STREAMING = "streaming"
    HYBRID = "hybrid"


class Purpose(StrEnum):
    EVENT_PUBLISH = "event_publish"
    SUBSCRIPTION = "subscription"
    RELAY_FEE = "relay_fee"
    AGENT_FEE = "agent_fee"
    CONTENT_PURCHASE = "content_purchase"
    TIP = "tip"


class Delivery(StrEnum):
    PUSH = "push"
    PULL = "pull"


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The most that a client wants to pay, from `payment.feeSchedule`."""

    base_relay_fee: int | None = None
    event_fee: int | None = None


@dataclass(frozen=True, slots=True)
class Payment:
    """The sender's own word on the payment. The amount that arrived counts, not this one."""

    amount: int = 0
    currency: str = ""
    purpose: Purpose | None = None
    model: Model | None = None
    ceilings: Ceilings | None = None


@dataclass(frozen=True, slots=True)
class Propagation:
    """How far a subscription may be passed on to other relays, and for how much in all."""

    hops: int
    budget: int


@dataclass(frozen=True, slots=True)
class Metadata:
    """`delivery` is None where the message does not say: a new subscription is then pulled, and an
    old one stays as it was."""

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


@dataclass(frozen=True, slots=True)
class Req:
    subscription_id: str
    filters: tuple[Filter, ...]
    payment: Payment
    metadata: Metadata
    resumption_token: str | None = None


@dataclass(frozen=True, slots=True)
class Close:
    subscription_id: str
    payment: Payment
    metadata: Metadata


@dataclass(frozen=True, slots=True)
class Count:
    subscription_id: str
    filters: tuple[Filter, ...]
    payment: Payment
    metadata: Metadata


@dataclass(frozen=True, slots=True)
class EventMessage:
    """A publish, or the delivery of an event to a subscriber. Its signature is not checked yet."""

    event: Event
    payment: Payment
    metadata: Metadata
    subscription_id: str | None = None


@dataclass(frozen=True, slots=True)
class Notice:
    message: str
    payment: Payment
    metadata: Metadata
    subscription_id: str | None = None


@dataclass(frozen=True, slots=True)
class Eose:
    subscription_id: str
    payment: Payment
    metadata: Metadata
    event_count: int | None = None
    resumption_token: str | None = None
    credit: int | None = None


@dataclass(frozen=True, slots=True)
class Ok:
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


@dataclass(frozen=True, slots=True)
class Closed:
    subscription_id: str
    reason: str
    payment: Payment
    metadata: Metadata


Message = Req | Close | Count | EventMessage | Notice | Eose | Ok | Auth | Closed


def delivered_for(message: Message) -> tuple[str, str] | None:
    """(relay key, subscription id) that a message of a relay to its subscriber names, else None.

    An EVENT that names no subscription is a publish. One that does is a delivery only if somebody
    here has opened that subscription.
    """
    if isinstance(message, Req | Close | Count | Ok):
        return None
    if message.metadata.sender is None or message.subscription_id is None:
        return None
    return message.metadata.sender, message.subscription_id
