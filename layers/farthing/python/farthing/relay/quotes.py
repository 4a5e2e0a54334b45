"""Quotes: what storing an event costs, where to pay, and the condition for a payer who is not its
author; and what a paid subscription costs. Nothing is kept: the condition follows from the event.
"""

from datetime import UTC, datetime
from typing import Any

from farthing.btp_nips.errors import MessageRefused
from farthing.btp_nips.filter_sets import check_filters
from farthing.btp_nips.messages import TTL_MAX, TTL_MIN, Model
from farthing.context import Agent
from farthing.ilp.condition import condition_of, quote_fulfillment
from farthing.ilp.packet import DATA_MAX
from farthing.nostr.events import Event
from farthing.nostr.filters import parse_filter
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


def quote_subscription(agent: Agent, wanted: object) -> dict[str, Any]:
    settings = agent.settings
    if type(wanted) is not dict or type(wanted.get("filters")) is not list:
        raise InvalidQuoteRequest("subscription is an object with an array of filters")
    ttl = wanted.get("ttl")
    if ttl is not None and (type(ttl) is not int or not TTL_MIN <= ttl <= TTL_MAX):
        raise InvalidQuoteRequest(f"ttl is a number from {TTL_MIN} to {TTL_MAX}")
    try:
        model = Model(wanted.get("model", Model.ONE_TIME))
        filters = [parse_filter(each) for each in wanted["filters"]]
        check_filters(filters, settings.max_filters, settings.max_filter_values)
        quoted = settings.subscription_fees.quote(model, filters, ttl)
    except MessageRefused as refused:
        raise InvalidQuoteRequest(refused.text) from None
    except ValueError as error:  # no model, or no filter
        raise InvalidQuoteRequest(str(error)) from None
    return quoted | _where(agent)


def _quote(agent: Agent, price: int, kind: int, size: int) -> dict[str, Any]:
    settings = agent.settings
    return {
        "price": str(price),
        "asset_code": settings.asset_code,
        "asset_scale": settings.asset_scale,
        "kind": kind,
        "size": size,
        **_where(agent),
    }


def _where(agent: Agent) -> dict[str, Any]:
    """Where to pay, and until when the price is meant to hold."""
    settings = agent.settings
    expires = datetime.fromtimestamp(agent.now + settings.quote_seconds, UTC)
    return {
        "destination": settings.own_ilp_address,
        "endpoint": settings.ilp_url,
        "pubkey": settings.pubkey,
        "expires_at": expires.isoformat().replace("+00:00", "Z"),
    }
