"""A paid subscription as values, and the items that they are stored in: its account, and its terms.

`paid_subscriptions` reads and writes the items.
"""

from base64 import b64decode, b64encode
from dataclasses import astuple, dataclass, replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

import orjson

from farthing.btp_nips.account import Account
from farthing.btp_nips.fees import Terms
from farthing.btp_nips.identity import Owner
from farthing.btp_nips.lifecycle import Current, Ending, State
from farthing.btp_nips.models import Delivery, Model
from farthing.btp_nips.positions import Position
from farthing.btp_nips.tokens import GRACE_SECONDS
from farthing.nostr.filters import Filter, parse_filter
from farthing.store.table import Item, is_expired

_TEXT_REMEMBERED: Final = 4096


@dataclass(frozen=True, slots=True)
class Agreed:
    """The part that changes only with a REQ. It is an item of its own, so that a delivery writes
    little."""

    terms: Terms
    filters: tuple[Filter, ...]
    delivery: Delivery
    peer: str  # the peer whose packets brought the subscription
    reply_to: str = ""
    window: int = 1
    hops: int = 0  # over how many relays the subscription is passed on
    path: tuple[str, ...] = ()
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Trouble:
    """The failures of deliveries since the last fulfilled one."""

    failures: int = 0  # in a row
    since: int = 0  # second of the first of them
    refusals: int = 0  # F02, F06 or F07 in a row
    attempts: int = 0  # final rejects of the next event
    retry_ms: int = 0  # no packet is sent before this time


class Offer(NamedTuple):
    """A payment to another relay, for a subscription there. Its amount has left the budget, and its
    outcome is not known yet."""

    peer: str
    amount: int
    data: bytes  # of its packet: the REQ
    until: int  # when the subscription that it pays for ends
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class PaidSubscription:
    owner: Owner
    id: str
    agreed: Agreed
    account: Account
    state: State
    began: int
    expires_at: int
    last_timestamp: int
    since: int  # the change number at which it began, which is also the position of EOSE
    stored: int  # events in its backlog
    floor: Position  # the position behind which its own positions begin
    version: int = 0
    generation: int = 0  # changes with the filters: hints of earlier generations are out of date
    credited: int = 0  # the part of the payments that became credit or budget
    refilled: int = 0  # drawn from the owner's purse
    budget: int = 0  # for other relays, not spent yet
    is_spread: bool = False  # whether it has been passed on to other relays as far as possible
    offer: Offer | None = None  # to another relay, under way
    is_low: bool = False  # the owner was told that little credit is left
    trouble: Trouble = Trouble()
    ending: str = ""
    returned: int = 0  # the amount that went back to the owner at the end
    is_told: bool = False  # whether CLOSED has arrived
    gone_at: int = 0  # when the record of an ended subscription expires
    lease_ms: int = 0  # the end of the lease of its delivery; 0 without a lease

    @property
    def place(self) -> str:
        """The subscription's name in hints. It changes with the filters."""
        return f"{self.generation}#{self.owner}#{self.id}"

    @property
    def filters(self) -> tuple[Filter, ...]:
        return self.agreed.filters

    @property
    def terms(self) -> Terms:
        return self.agreed.terms

    @property
    def current(self) -> Current:
        return Current(self.filters, self.state, self.expires_at, self.last_timestamp)

    @property
    def is_push(self) -> bool:
        return self.agreed.delivery is Delivery.PUSH

    @property
    def has_work(self) -> bool:
        """Whether the subscription has work without a request of its owner."""
        if self.offer is not None or (self.is_push and not self.is_told):
            return True
        return bool(self.agreed.hops) and not self.is_spread and not self.state.has_ended

    def may_deliver(self, now: int) -> bool:
        return self.current.may_deliver(now)

    def state_at(self, now: int) -> State:
        """The state as its owner sees it: a subscription whose time is over has expired, even if
        no sweep has ended it yet."""
        is_over = not self.state.has_ended and now >= self.expires_at
        return State.EXPIRED if is_over else self.state

    def ended(self, ending: Ending, now: int) -> "PaidSubscription":
        """The subscription after its end. `returned` is its remaining credit, which the planner of
        the end must move."""
        left = self.account.credit + self.budget
        return replace(
            self,
            account=replace(self.account, credit=0),
            trouble=Trouble(),  # CLOSED is sent at once, with attempts of its own
            budget=0,
            state=ending.state,
            ending=ending.value,
            returned=left,
            gone_at=now + GRACE_SECONDS,
        )


class Standing(NamedTuple):
    """The stored state under a subscription's key. Of an account whose time is over, only the
    version counts."""

    subscription: PaidSubscription | None
    version: int | None  # of the account's item; None without an item


# Items


def standing_of(
    owner: Owner, subscription_id: str, account: Item | None, terms: Item | None, now: int
) -> Standing:
    """The state in the stored items of a subscription."""
    if account is None or "v" not in account:
        return Standing(None, None)
    if terms is None or is_expired(account, now):
        return Standing(None, account["v"])
    subscription = _subscription(owner, subscription_id, account, _agreed(terms))
    return Standing(subscription, account["v"])


def numbers_of(subscription: PaidSubscription) -> dict[str, int]:
    """The attributes that are changed by addition, because several writers may add at the same
    time."""
    account = subscription.account
    return {
        "credit": account.credit,
        "spent": account.spent,
        "delivered": account.delivered,
        "replays": account.replays,
        "credited": subscription.credited,
        "refilled": subscription.refilled,
        "budget": subscription.budget,
    }


def assigned_of(subscription: PaidSubscription) -> dict[str, Any]:
    """All other attributes of the account but the version and the lease."""
    trouble = subscription.trouble
    return {
        "cursor": subscription.account.cursor.to_int(),
        "mark": subscription.account.paid_mark.to_int(),
        "floor": subscription.floor.to_int(),
        "state": subscription.state.value,
        "gen": subscription.generation,
        "began": subscription.began,
        "until": subscription.expires_at,
        "last": subscription.last_timestamp,
        "since": subscription.since,
        "stored": subscription.stored,
        "low": int(subscription.is_low),
        "spread": int(subscription.is_spread),
        "offer": _offer_text(subscription.offer),
        "trouble": list(astuple(trouble)),
        "ending": subscription.ending,
        "returned": subscription.returned,
        "told": int(subscription.is_told),
    }


def _offer_text(offer: Offer | None) -> str:
    if offer is None:
        return ""
    data = b64encode(offer.data).decode()
    return orjson.dumps([offer.peer, offer.amount, data, offer.until, offer.attempts]).decode()


def _offer(text: str) -> Offer | None:
    if not text:
        return None
    peer, amount, data, until, attempts = orjson.loads(text)
    return Offer(peer, amount, b64decode(data), until, attempts)


def account_item(new: PaidSubscription, version: int) -> dict[str, Any]:
    """The account of a subscription that is opened, over an item of this version."""
    return {**numbers_of(new), **assigned_of(new), "v": version + 1, "lease": 0, "holder": ""}


def terms_item(agreed: Agreed) -> dict[str, Any]:
    terms = agreed.terms
    return {
        "model": terms.model.value,
        "price": terms.price,
        "event_fee": terms.event_fee,
        "minute_fee": terms.minute_fee,
        "max_ttl": terms.max_ttl,
        "max_events": terms.max_events,
        "asset_code": terms.asset_code,
        "asset_scale": terms.asset_scale,
        "filters": orjson.dumps([filter.as_dict() for filter in agreed.filters]).decode(),
        "delivery": agreed.delivery.value,
        "peer": agreed.peer,
        "reply_to": agreed.reply_to,
        "window": agreed.window,
        "hops": agreed.hops,
        "path": list(agreed.path),
        "origin": agreed.origin,
    }


def _agreed(item: Item) -> Agreed:
    text = item["filters"]
    return Agreed(
        terms=Terms(
            model=Model(item["model"]),
            price=item["price"],
            event_fee=item["event_fee"],
            minute_fee=item["minute_fee"],
            max_ttl=item["max_ttl"],
            max_events=item["max_events"],
            asset_code=item["asset_code"],
            asset_scale=item["asset_scale"],
        ),
        filters=_remembered_filters(text) if len(text) < _TEXT_REMEMBERED else _filters(text),
        delivery=Delivery(item["delivery"]),
        peer=item["peer"],
        reply_to=item["reply_to"],
        window=item["window"],
        hops=item["hops"],
        path=tuple(item["path"]),
        origin=item["origin"],
    )


def _filters(text: str) -> tuple[Filter, ...]:
    return tuple(parse_filter(value) for value in orjson.loads(text))


_remembered_filters = lru_cache(maxsize=2048)(_filters)


def _subscription(
    owner: Owner, subscription_id: str, item: Item, agreed: Agreed
) -> PaidSubscription:
    return PaidSubscription(
        owner=owner,
        id=subscription_id,
        agreed=agreed,
        account=Account(
            credit=item["credit"],
            cursor=Position.from_int(item["cursor"]),
            paid_mark=Position.from_int(item["mark"]),
            spent=item["spent"],
            delivered=item["delivered"],
            replays=item["replays"],
        ),
        state=State(item["state"]),
        began=item["began"],
        expires_at=item["until"],
        last_timestamp=item["last"],
        since=item["since"],
        stored=item["stored"],
        floor=Position.from_int(item["floor"]),
        version=item["v"],
        generation=item["gen"],
        credited=item["credited"],
        refilled=item["refilled"],
        budget=item["budget"],
        is_low=bool(item["low"]),
        is_spread=bool(item["spread"]),
        offer=_offer(item.get("offer", "")),
        trouble=Trouble(*item["trouble"]),
        ending=item["ending"],
        returned=item["returned"],
        is_told=bool(item["told"]),
        lease_ms=item["lease"],
    )
