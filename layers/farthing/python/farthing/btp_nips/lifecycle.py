"""The states of a subscription, and the meaning of a REQ or CLOSE in each state."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from farthing.btp_nips.errors import (
    InvalidAmount,
    Outdated,
    Replayed,
    SubscriptionExpired,
    SubscriptionNotFound,
)
from farthing.btp_nips.filter_sets import same_filters
from farthing.btp_nips.positions import Position
from farthing.nostr.filters import Filter

# Requests about open subscriptions see no messages, and the import is slow.
if TYPE_CHECKING:
    from farthing.btp_nips.messages import Req

REPLAY_SECONDS: Final = 600  # how long the hash of a message is stored at least


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
    """The state after an EOSE was fulfilled. A late EOSE does not reopen an ended subscription."""
    return State.ACTIVE if state is State.PENDING else state


@dataclass(frozen=True, slots=True)
class Current:
    """The part of a subscription's record that decides the meaning of a REQ."""

    filters: Sequence[Filter]
    state: State
    expires_at: int
    last_timestamp: int = 0

    def may_deliver(self, now: int) -> bool:
        """Whether an EVENT may still be sent: none is sent at or after the expiry."""
        return not self.state.has_ended and now < self.expires_at


class Intent(StrEnum):
    """The purpose of a REQ. Every purpose but STATUS can be combined with a pull."""

    CREATE = "create"
    REPLACE = "replace"  # other filters, or a token: full price, stored events again
    TOP_UP = "top_up"  # more credit, more time, or another way of delivery
    PULL = "pull"  # events and nothing else
    STATUS = "status"  # changes nothing


def intent_of(req: "Req", received: int, current: Current | None, now: int) -> Intent:
    """Raises SubscriptionNotFound or SubscriptionExpired if a REQ without filters names no open
    subscription."""
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
        # The subscription's time is over, but its record does not say so yet.
        if req.filters:
            return Intent.REPLACE
        raise SubscriptionExpired("the subscription's time is over")
    if received or ttl is not None or pull is None:
        return Intent.TOP_UP
    return Intent.PULL


def delivery_start(cursor: Position, paid_mark: Position, after: Position | None) -> Position:
    """The position behind which a pull continues: the last one that the client has, or without
    `after` the last one handed out. A position that was never handed out counts as the last one
    that was, so that no event is missed."""
    return cursor if after is None else min(max(cursor, paid_mark), after)


def _ended(current: Current) -> SubscriptionExpired | SubscriptionNotFound:
    if current.state is State.EXPIRED:
        return SubscriptionExpired("the subscription's time is over")
    return SubscriptionNotFound("the subscription is closed")


def check_close(received: int, current: Current | None) -> None:
    """Check a CLOSE. A second CLOSE gets the same answer as the first."""
    if received:
        raise InvalidAmount(f"CLOSE takes no money, got {received}")
    if current is None:
        raise SubscriptionNotFound("no subscription has this id")


def check_order(timestamp: int, current: Current | None) -> None:
    """Refuse an outdated message: a delayed CLOSE must not end a later REQ."""
    if current is not None and timestamp < current.last_timestamp:
        raise Outdated(
            f"expected a timestamp of at least {current.last_timestamp}, got {timestamp}"
        )


def check_replay(first_peer: str | None, peer: str) -> bool:
    """Whether a message is a repeat, which has no second effect. `first_peer` is the peer that sent
    it before, or None. Raises Replayed if that was another peer."""
    if first_peer is not None and first_peer != peer:
        raise Replayed("the same message has come from another peer")
    return first_peer is not None
