"""The price of storing an event, which also depends on its author, and where to pay it."""

from datetime import UTC, datetime
from typing import Any, NamedTuple

from farthing.context import Agent
from farthing.ilp.toon import NotEncodable, encoded_length
from farthing.nostr.events import Event
from farthing.relay.moderation import is_allowed


def writes_free(agent: Agent, pubkey: str) -> bool:
    """Whether a key writes for free: the owner, and authors that the settings or the operator's
    rules allow."""
    settings = agent.settings
    return pubkey == settings.pubkey or pubkey in settings.free_pubkeys or is_allowed(agent, pubkey)


class Charge(NamedTuple):
    price: int
    size: int  # size of the priced encoding; 0 without a price


_NOTHING = Charge(0, 0)


def charge_for(agent: Agent, event: Event) -> Charge:
    """The price of an event that is not encoded yet, by the size of our own encoding."""
    settings = agent.settings
    if not settings.tariff.may_charge(event.kind) or writes_free(agent, event.pubkey):
        return _NOTHING
    size = encoded_size(event)
    return Charge(settings.tariff.price_event(event, size), size)


def price_of(agent: Agent, event: Event) -> int:
    return charge_for(agent, event).price


def encoded_size(event: Event) -> int:
    try:
        return encoded_length(event)
    except NotEncodable:
        # The event cannot be sent as TOON. The size of its JSON is close enough for a price.
        return len(event.to_json().encode())


def offer(agent: Agent) -> dict[str, Any]:
    """The common part of every quote: the asset, the address for the payment, and the end of
    validity."""
    settings = agent.settings
    return {
        "asset_code": settings.asset_code,
        "asset_scale": settings.asset_scale,
        **where_to_pay(agent),
    }


def where_to_pay(agent: Agent) -> dict[str, Any]:
    """The address for the payment, and the time until which the price is valid."""
    settings = agent.settings
    expires = datetime.fromtimestamp(agent.now + settings.quote_seconds, UTC)
    return {
        "destination": settings.own_ilp_address,
        "endpoint": settings.ilp_url,
        "pubkey": settings.pubkey,
        "expires_at": expires.isoformat().replace("+00:00", "Z"),
    }
