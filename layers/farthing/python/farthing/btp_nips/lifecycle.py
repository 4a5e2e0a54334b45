"""The life of a subscription: its states, and what a REQ or CLOSE means for it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from farthing.btp_nips.errors import (
    InvalidAmount,
    Outdated,
    Replayed,
    SubscriptionExpired,
    SubscriptionNotFound,
)
from farthing.btp_nips.filter_sets import same_filters
from farthing.btp_nips.messages import Req
from farthing.btp_nips.positions import Position
from farthing.nostr.filters import Filter

REPLAY_SECONDS: Final = 600  # how long a message is known by its hash


class State(StrEnum):
    PENDING = "pending"  # the REQ is committed, stored events are on their way
    ACTIVE = "active"  # EOSE was fulfilled or handed out
    EXPIRED = "expired"
    CLOSED = "closed"

    @property
    def has_ended(self) -> bool:
        return self in (State.EXPIRED, State.CLOSED)


class Ending(StrEnum):
    """Why a subscription ends: the text of its CLOSED message."""

    TTL = "Subscription TTL expired"
    CLOSE = "Subscription closed"
    CREDIT = "Subscription credit is used up"
    EVENTS = "Subscription has delivered all its free events"
    UNREACHABLE = "Subscriber is unreachable"
    OPERATOR = "Subscription closed by the operator"

    @property
    def state(self) -> State:
        return State.EXPIRED if self is Ending.TTL else State.CLOSED


def after_eose(state: State) -> State:
    """An EOSE that is fulfilled late does not bring back what has ended."""
    return State.ACTIVE if state is State.PENDING else state


def after_ending(state: State, ending: Ending) -> State:
    """The first ending counts."""
    return state if state.has_ended else ending.state


@dataclass(frozen=True, slots=True)
class Current:
    """What a REQ meets: the part of a subscription's record that decides what the REQ means."""

    filters: Sequence[Filter]
    state: State
    expires_at: int
    last_timestamp: int = 0

    def may_deliver(self, now: int) -> bool:
        """No EVENT starts at or after the expiry."""
        return not self.state.has_ended and now < self.expires_at


class Intent(StrEnum):
    """What a REQ asks for. Each but STATUS may come with a pull as well."""

    CREATE = "create"
    REPLACE = "replace"  # other filters, or a token: full price, stored events again
    TOP_UP = "top_up"  # more credit, more time, or another way of delivery
    PULL = "pull"  # events and nothing else
    STATUS = "status"  # changes nothing


def intent_of(req: Req, received: int, current: Current | None, now: int) -> Intent:
    """Raises SubscriptionNotFound or SubscriptionExpired where a REQ without filters has no
    subscription to mean."""
    ttl, pull = req.metadata.ttl, req.metadata.pull
    asks_nothing = not received and ttl is None and pull is None
    if current is None or current.state.has_ended:
        if req.filters:
            return Intent.CREATE
        if current is None:
            raise SubscriptionNotFound("no subscription has this id")
        if asks_nothing:
            return Intent.STATUS
        raise _ended(current)
    if not req.filters:
        if asks_nothing:
            return Intent.STATUS
    elif req.resumption_token is not None or not same_filters(req.filters, current.filters):
        return Intent.REPLACE
    if now >= current.expires_at and ttl is None:
        # Its time is over, though nobody has written that down yet.
        if req.filters:
            return Intent.REPLACE
        raise SubscriptionExpired("the subscription's time is over")
    if received or ttl is not None or pull is None:
        return Intent.TOP_UP
    return Intent.PULL


def delivery_start(cursor: Position, after: Position | None) -> Position:
    """The position behind which a pull goes on. `cursor` is the last one handed out: a client that
    claims to be further is not made to miss what lies between."""
    return cursor if after is None else min(cursor, after)


def is_charged(position: Position, paid_mark: Position) -> bool:
    """A position at or below the highest one charged is delivered again for nothing."""
    return position > paid_mark


def _ended(current: Current) -> SubscriptionExpired | SubscriptionNotFound:
    if current.state is State.EXPIRED:
        return SubscriptionExpired("the subscription's time is over")
    return SubscriptionNotFound("the subscription is closed")


def check_close(received: int, current: Current | None) -> None:
    """A second CLOSE is as good as the first."""
    if received:
        raise InvalidAmount(f"CLOSE takes no money, got {received}")
    if current is None:
        raise SubscriptionNotFound("no subscription has this id")


def check_order(timestamp: int, current: Current | None) -> None:
    """A CLOSE that somebody held back must not end a later REQ."""
    if current is not None and timestamp < current.last_timestamp:
        raise Outdated(
            f"expected a timestamp of at least {current.last_timestamp}, got {timestamp}"
        )


def check_replay(first_peer: str | None, peer: str) -> bool:
    """Whether a message is a repetition, which has no second effect. `first_peer` sent it before;
    None if nobody did. Raises Replayed where it came from somebody else."""
    if first_peer is not None and first_peer != peer:
        raise Replayed("the same message has come from another peer")
    return first_peer is not None
