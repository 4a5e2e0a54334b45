"""The fees of paid subscriptions: the single source of every fee that we state, quote or charge."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from farthing.btp_nips.errors import (
    InvalidAmount,
    LimitExceeded,
    ModelNotOffered,
    PaymentInsufficient,
)
from farthing.btp_nips.models import Model
from farthing.nostr.filters import Filter

# Requests about open subscriptions see no messages, and the import is slow.
if TYPE_CHECKING:
    from farthing.btp_nips.messages import Ceilings, Payment

COUNTED_LIMIT: Final = 100  # a filter's limit adds at most this much to its complexity
REFILL_FEES: Final = 100
LOW_CREDIT_FEES: Final = 10
SECONDS_PER_MINUTE: Final = 60

_TAG_PREFIX: Final = "subscription_"


def complexity(filters: Iterable[Filter]) -> int:
    return sum(filter.value_count() + min(filter.limit or 0, COUNTED_LIMIT) for filter in filters)


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms agreed when a subscription was opened or replaced. Later changes of the fees do not
    affect them."""

    model: Model
    price: int
    event_fee: int
    minute_fee: int  # for each minute that a top-up adds
    max_ttl: int
    max_events: int | None = None  # in total; None means no limit
    asset_code: str = ""
    asset_scale: int = 0

    @property
    def least(self) -> int:
        """The smallest amount that opens the subscription: its price and one event."""
        return self.price + self.event_fee


class Agreement(NamedTuple):
    """The purchase of a REQ."""

    terms: Terms
    ttl: int
    credit: int


@dataclass(frozen=True, slots=True)
class FeeSchedule:
    """All fees are in the relay's own asset."""

    models: frozenset[Model]
    base_fee: int
    minute_fee: int
    complexity_fee: int
    setup_fee: int
    event_fee: int
    hybrid_fee: int
    hybrid_event_fee: int
    default_ttl: int
    max_ttl: int
    free_events: int
    free_ttl: int
    asset_code: str
    asset_scale: int

    def terms(self, model: Model, filters: Sequence[Filter], ttl: int) -> Terms:
        if model not in self.models:
            raise ModelNotOffered(f"expected one of {self._model_names()}, got {model}")
        longest = self.longest(model)
        if ttl > longest:
            raise LimitExceeded(f"expected a ttl of at most {longest} seconds, got {ttl}")
        return self._terms(model, filters, ttl)

    def _terms(self, model: Model, filters: Sequence[Filter], ttl: int) -> Terms:
        price, event_fee, minute_fee, max_events = 0, 0, 0, None
        match model:
            case Model.FREE:
                max_events = self.free_events
            case Model.ONE_TIME:
                minute_fee = self.minute_fee
                price = (
                    self.base_fee
                    + time_price(ttl, minute_fee)
                    + complexity(filters) * self.complexity_fee
                )
            case Model.STREAMING:
                price, event_fee = self.setup_fee, self.event_fee
            case Model.HYBRID:
                price, event_fee = self.hybrid_fee, self.hybrid_event_fee
        return Terms(
            model=model,
            price=price,
            event_fee=event_fee,
            minute_fee=minute_fee,
            max_ttl=self.longest(model),
            max_events=max_events,
            asset_code=self.asset_code,
            asset_scale=self.asset_scale,
        )

    def longest(self, model: Model) -> int:
        """The longest ttl, in seconds."""
        return min(self.free_ttl, self.max_ttl) if model is Model.FREE else self.max_ttl

    def ttl(self, model: Model, stated: int | None) -> int:
        return min(self.default_ttl, self.longest(model)) if stated is None else stated

    def choose(self, payment: "Payment", received: int) -> Model:
        """The model that a REQ names, or the default model for its amount."""
        if payment.model is not None:
            return payment.model
        if payment.ceilings is not None and payment.ceilings.event_fee is not None:
            return Model.HYBRID
        # If no model is free, a REQ without money is refused with the price.
        is_free = received == 0 and Model.FREE in self.models
        return Model.FREE if is_free else Model.ONE_TIME

    def agree(
        self,
        payment: "Payment",
        filters: Sequence[Filter],
        ttl: int | None,
        *,
        received: int,
        budget: int = 0,
    ) -> Agreement:
        """The terms and credit of a new subscription for the received amount. `budget` is for other
        relays.

        Raises ModelNotOffered, LimitExceeded, InvalidAmount or PaymentInsufficient.
        """
        model = self.choose(payment, received)
        seconds = self.ttl(model, ttl)
        terms = self.terms(model, filters, seconds)
        check_ceilings(terms, payment.ceilings, received)
        check_received(terms, received, budget)
        return Agreement(terms, seconds, received - terms.price - budget)

    # Statements

    def as_fees(self) -> dict[str, Any]:
        """For `fees` of the relay information document (NIP-11). Our own field."""
        return {"paid_subscription": [self._fees_of(model) for model in Model if self._has(model)]}

    def _fees_of(self, model: Model) -> dict[str, Any]:
        terms = self._terms(model, (), 0)
        stated: dict[str, Any] = {
            "model": model.value,
            "amount": terms.price,
            "event_fee": terms.event_fee,
            "unit": f"{self.asset_code}/1e{self.asset_scale}",
            "max_ttl": terms.max_ttl,
        }
        if model is Model.ONE_TIME:
            stated |= {"per_minute": self.minute_fee, "per_complexity": self.complexity_fee}
        if terms.max_events is not None:
            stated["max_events"] = terms.max_events
        return stated

    def as_tags(self) -> list[list[str]]:
        """The tags of kind 10032, which already states the asset elsewhere."""
        return [
            [_TAG_PREFIX + "models", *(model for model in Model if self._has(model))],
            *([_TAG_PREFIX + name, str(getattr(self, name))] for name in _NUMBERS),
        ]

    def quote(self, model: Model, filters: Sequence[Filter], ttl: int | None) -> dict[str, Any]:
        seconds = self.ttl(model, ttl)
        terms = self.terms(model, filters, seconds)
        return {
            "model": model.value,
            "price": str(terms.price),
            "event_fee": str(terms.event_fee),
            "least": str(terms.least),
            "complexity": complexity(filters),
            "ttl": seconds,
            "asset_code": self.asset_code,
            "asset_scale": self.asset_scale,
        }

    def _has(self, model: Model) -> bool:
        return model in self.models

    def _model_names(self) -> str:
        return ", ".join(model for model in Model if self._has(model)) or "no model"


_NUMBERS: Final = [
    each.name
    for each in fields(FeeSchedule)
    if each.name not in ("models", "asset_code", "asset_scale")
]


def fees_in_tags(
    tags: Iterable[Sequence[str]], asset_code: str, asset_scale: int
) -> FeeSchedule | None:
    """The fees that another relay's kind 10032 states, or None if it sells no subscriptions."""
    stated = {tag[0]: tag[1:] for tag in tags if tag and tag[0].startswith(_TAG_PREFIX)}
    models = stated.get(_TAG_PREFIX + "models", ())
    numbers: dict[str, Any] = {}
    for name in _NUMBERS:
        values = stated.get(_TAG_PREFIX + name, ())
        if len(values) != 1 or not values[0].isdecimal() or not values[0].isascii():
            return None
        if len(values[0]) > len(str(2**64)):
            return None
        numbers[name] = int(values[0])
    return FeeSchedule(
        models=frozenset(model for model in Model if model in models),
        asset_code=asset_code,
        asset_scale=asset_scale,
        **numbers,
    )


def time_price(ttl: int, minute_fee: int) -> int:
    return ttl // SECONDS_PER_MINUTE * minute_fee


# Checks


def check_received(terms: Terms, received: int, reserved: int = 0) -> None:
    """Check that the received amount opens the subscription. `reserved` is a budget that is taken
    out of it."""
    if terms.model is Model.FREE and received:
        raise InvalidAmount(f"a free subscription takes no money, got {received}")
    if received < terms.least + reserved:
        raise payment_insufficient(terms, terms.least + reserved, received)


def check_ceilings(terms: Terms, ceilings: "Ceilings | None", received: int) -> None:
    """A client's own fee schedule is the most that the client pays. If our fees are lower, ours
    apply."""
    if ceilings is None:
        return
    for name, ceiling, fee in (
        ("baseRelayFee", ceilings.base_relay_fee, terms.price),
        ("eventFee", ceilings.event_fee, terms.event_fee),
    ):
        if ceiling is not None and fee > ceiling:
            text = f"expected at least {fee} as {name} for model {terms.model}, got {ceiling}"
            raise _payment_refused(text, terms, terms.least, received)


def payment_insufficient(terms: Terms, price: int, received: int) -> PaymentInsufficient:
    text = (
        f"expected {price} for model {terms.model} with {terms.event_fee} for each event, "
        f"got {received}"
    )
    return _payment_refused(text, terms, price, received)


def _payment_refused(text: str, terms: Terms, price: int, received: int) -> PaymentInsufficient:
    return PaymentInsufficient(
        text,
        price=str(price),
        received=str(received),
        asset_code=terms.asset_code,
        asset_scale=terms.asset_scale,
        model=terms.model.value,
        event_fee=str(terms.event_fee),
    )


# Credit and time


class TopUp(NamedTuple):
    """The state after a top-up. `cost` is the part of the money that paid for time."""

    credit: int
    expires_at: int
    cost: int


def top_up(
    terms: Terms, *, credit: int, expires_at: int, received: int, ttl: int | None, now: int
) -> TopUp:
    """Raises InvalidAmount, LimitExceeded or PaymentInsufficient. All times are in seconds."""
    if terms.model is Model.FREE and received:
        raise InvalidAmount(f"a free subscription takes no money, got {received}")
    if ttl is None:
        return TopUp(credit + received, expires_at, 0)
    if ttl > terms.max_ttl:
        raise LimitExceeded(f"expected a ttl of at most {terms.max_ttl} seconds, got {ttl}")
    cost = time_price(ttl, terms.minute_fee)
    if credit + received < cost:
        raise payment_insufficient(terms, cost - credit, received)
    later = extended(now=now, expires_at=expires_at, ttl=ttl, max_ttl=terms.max_ttl)
    return TopUp(credit + received - cost, later, cost)


def extended(*, now: int, expires_at: int, ttl: int, max_ttl: int) -> int:
    return min(max(now, expires_at) + ttl, now + max_ttl)


def refill(credit: int, purse: int, event_fee: int) -> int:
    """The amount to draw from the owner's purse when credit is below one fee. If the purse has less
    than a whole step, its whole balance is drawn, provided that it pays for one more event."""
    if credit >= event_fee or credit + purse < event_fee:
        return 0
    return min(purse, REFILL_FEES * event_fee)


class CreditLevel(StrEnum):
    """Whether credit and purse suffice for further events."""

    ENOUGH = "enough"
    LOW = "low"  # below ten fees: one NOTICE
    GONE = "gone"  # below one fee: NOTICE, then CLOSED


LOW_CREDIT: Final = "credit_low"


def credit_level(credit: int, purse: int, event_fee: int) -> CreditLevel:
    """Free events need no credit."""
    left = credit + purse
    if left < event_fee:
        return CreditLevel.GONE
    return CreditLevel.LOW if left < LOW_CREDIT_FEES * event_fee else CreditLevel.ENOUGH


def low_credit_text(credit: int, purse: int, event_fee: int) -> str:
    left = credit + purse
    return f"{left} left, enough for {left // event_fee} events at {event_fee} each"


def no_credit_text(credit: int, purse: int, event_fee: int) -> str:
    return f"the next event costs {event_fee}, and {credit + purse} is left"
