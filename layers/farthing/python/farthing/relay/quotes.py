"""Quotes: what storing an event costs, where to pay, and the condition for a payer who is not its
author. Nothing is kept: the condition follows from the event."""

from datetime import UTC, datetime
from typing import Any

from farthing.context import Agent
from farthing.ilp.condition import condition_of, quote_fulfillment
from farthing.ilp.packet import DATA_MAX
from farthing.nostr.events import Event
from farthing.nostr.kinds import MAX_KIND
from farthing.ports.http import BadRequest
from farthing.relay.price import encoded_size, unpayable, writes_free


class InvalidQuoteRequest(BadRequest):
    """Neither an event that a packet has room for, nor a kind and a size."""


def quote_event(agent: Agent, event: Event) -> dict[str, Any]:
    settings = agent.settings
    size = encoded_size(event)
    free = writes_free(settings, event.pubkey)
    price = 0 if free else settings.tariff.price_event(event, size)
    if price and size > DATA_MAX:
        raise InvalidQuoteRequest(unpayable(size))
    return quote_for(agent, price, event.kind, size, event.id)


def quote_for(agent: Agent, price: int, kind: int, size: int, event_id: str) -> dict[str, Any]:
    """The quote for an event of any format."""
    owner = bytes.fromhex(agent.settings.secret_key)
    condition = condition_of(quote_fulfillment(owner, bytes.fromhex(event_id)))
    return _quote(agent, price, kind, size) | {"event_id": event_id, "condition": condition.hex()}


def quote_size(agent: Agent, kind: object, size: object, tags: object = 0) -> dict[str, Any]:
    if type(kind) is not int or not 0 <= kind <= MAX_KIND:
        raise InvalidQuoteRequest(f"kind is a number from 0 to {MAX_KIND}")
    if type(size) is not int or not 0 <= size <= DATA_MAX:
        raise InvalidQuoteRequest(f"size is a number of bytes, at most {DATA_MAX}")
    if type(tags) is not int or not 0 <= tags <= DATA_MAX:
        raise InvalidQuoteRequest("tags is a number of indexed tags")
    return _quote(agent, agent.settings.tariff.price(kind, size, tags), kind, size)


def _quote(agent: Agent, price: int, kind: int, size: int) -> dict[str, Any]:
    settings = agent.settings
    return {
        "price": str(price),
        "asset_code": settings.asset_code,
        "asset_scale": settings.asset_scale,
        "kind": kind,
        "size": size,
        **where_to_pay(agent),
    }


def where_to_pay(agent: Agent) -> dict[str, Any]:
    """Where to pay, and until when the price is meant to hold."""
    settings = agent.settings
    expires = datetime.fromtimestamp(agent.now + settings.quote_seconds, UTC)
    return {
        "destination": settings.own_ilp_address,
        "endpoint": settings.ilp_url,
        "pubkey": settings.pubkey,
        "expires_at": expires.isoformat().replace("+00:00", "Z"),
    }
