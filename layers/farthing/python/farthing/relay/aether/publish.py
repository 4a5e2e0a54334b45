"""PUBLISH: check an Aether event, see that it may be written without payment, and store it.

Every event that does not come by ILP is published here: from sockets, HTTP and the Nostr gateway.
The order of checks is shape, policy, id, weak key, signature, price.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from farthing.aether import policies
from farthing.aether.capabilities import check_chain
from farthing.aether.errors import (
    AetherError,
    CapabilityRefused,
    Code,
    InvalidEvent,
    TooLarge,
    ValidationFailed,
)
from farthing.aether.events import Event, Policy, check, parse_event
from farthing.aether.messages import Publish
from farthing.context import Agent
from farthing.nostr.kinds import Keeping
from farthing.ports.http import BadRequest
from farthing.ports.meter import Metric
from farthing.relay.aether import ephemerals
from farthing.relay.aether.owner import owner_keys
from farthing.relay.aether.price import Unpayable, price_of, quote_event
from farthing.store.capabilities import Capabilities
from farthing.store.events import Outcome
from farthing.store.payment import Payment, PaymentRefused
from farthing.store.spaces import AETHER

ACCEPTED: Final = "accepted"
DUPLICATE: Final = "duplicate"


class Superseded(ValidationFailed):
    """A newer version of the event's address is stored."""


class PaymentRequired(AetherError):
    """Storing the event costs money. The quote has the price and the address for the payment."""

    code: ClassVar[Code] = Code.PAYMENT_REQUIRED

    def __init__(self, event_id: str, quote: Mapping[str, Any]) -> None:
        unit = f"{quote['asset_code']}/1e{quote['asset_scale']}"
        super().__init__(f"storing this event costs {quote['price']} {unit}", event_id=event_id)
        self.quote = quote


@dataclass(frozen=True, slots=True)
class Accepted:
    event_id: str
    message: str = ACCEPTED


def publish(
    agent: Agent, message: Publish, *, ip: str | None, beside: Callable[[], Any] = lambda: None
) -> Accepted:
    """Store an event that came without a payment. Raises AetherError if the event is refused.

    `beside` runs in parallel with the first request to the store. If it raises, nothing is stored.
    """
    try:
        event = read_event(agent, message.event)
        accepted = _store(agent, event, message.capability, ip, beside)
    except AetherError as error:
        agent.meter.count(Metric.EVENTS_REFUSED)
        error.event_id = error.event_id or message.event_id
        raise
    if accepted.message == ACCEPTED:
        agent.meter.count(Metric.EVENTS_STORED)
    return accepted


def read_event(agent: Agent, value: object) -> Event:
    """The event, after all checks but the price."""
    event = parse_event(value, max_tags=agent.settings.max_event_tags)
    check(event, event_policies(agent))
    return event


def event_policies(agent: Agent) -> tuple[Policy, ...]:
    """The policies of the specification and of the operator, at this moment."""
    settings = agent.settings
    return (
        _not_too_large(settings.max_content_length),
        *policies.standard(agent.now_ns, settings.aether_future_seconds),
        _not_blocked(settings.blocked_pubkeys),
    )


def _not_too_large(most: int) -> Policy:
    def policy(event: Event) -> None:
        if len(event.content) > most:
            raise TooLarge(f"expected content of at most {most} octets", event_id=event.id)

    return policy


def _not_blocked(blocked: frozenset[str]) -> Policy:
    def policy(event: Event) -> None:
        if event.pubkey in blocked:
            raise ValidationFailed("author is blocked here", event_id=event.id)

    return policy


def _store(
    agent: Agent, event: Event, capability: object, ip: str | None, beside: Callable[[], Any]
) -> Accepted:
    try:
        payment = _payment(agent, event, capability, ip)
        if event.keeping is Keeping.EPHEMERAL:
            beside()
            return _pass_on(agent, event, payment)
        return _answer(event, agent.kept(AETHER).events.save(event, beside=beside, payment=payment))
    except (PaymentRequired, PaymentRefused, CapabilityRefused) as refused:
        # An event that was accepted and is sent again costs nothing, whoever sends it.
        if _was_accepted(agent, event):
            return Accepted(event.id, DUPLICATE)
        if isinstance(refused, PaymentRefused):
            raise CapabilityRefused("a token is revoked or used up") from None
        raise


def _was_accepted(agent: Agent, event: Event) -> bool:
    if event.keeping is Keeping.EPHEMERAL:
        return ephemerals.is_claimed(agent, event)
    return agent.kept(AETHER).events.get(event.id) is not None


def _payment(agent: Agent, event: Event, capability: object, ip: str | None) -> Payment | None:
    """The payment for the event: none if it is free, or one use of each token of a chain."""
    if capability is not None:
        grant = check_chain(
            capability, owner=owner_keys(agent).pubkey, author=event.pubkey, kind=event.kind,
            now_ns=agent.now_ns, ip=ip,
        )  # fmt: skip
        capabilities = agent.part(capabilities_of)
        # Tokens are checked before anything is written: a used-up token must not cost us a write
        # each time.
        refusal = capabilities.refusal(grant.uses)
        if refusal is not None:
            raise CapabilityRefused(refusal)
        return capabilities.payment(grant.uses)
    if price_of(agent, event):
        try:
            raise PaymentRequired(event.id, quote_event(agent, event))
        except Unpayable as error:
            raise TooLarge(str(error), event_id=event.id) from None
    return None


def capabilities_of(agent: Agent) -> Capabilities:
    return Capabilities(agent.engine)


def _pass_on(agent: Agent, event: Event, payment: Payment | None) -> Accepted:
    if not ephemerals.claim(agent, event, payment):
        return Accepted(event.id, DUPLICATE)
    ephemerals.pass_on(agent, event)
    return Accepted(event.id)


def _answer(event: Event, outcome: Outcome) -> Accepted:
    match outcome:
        case Outcome.STORED:
            return Accepted(event.id)
        case Outcome.DUPLICATE:
            return Accepted(event.id, DUPLICATE)
    raise Superseded("superseded: a newer version is stored", event_id=event.id)


def quote(agent: Agent, value: object) -> dict[str, Any]:
    """The quote for an event that is not paid for yet."""
    try:
        return quote_event(agent, read_event(agent, value))
    except (InvalidEvent, ValidationFailed, TooLarge, Unpayable) as error:
        raise BadRequest(str(error)) from None
