"""Quotes: what storing an event costs, where to pay, and the condition for a payer who is not its
author; and what a paid subscription costs. No quote is stored: the condition is computed from the
event.
"""

from base64 import b64encode
from collections.abc import Mapping
from secrets import token_bytes
from typing import Any

from farthing.btp_nips.errors import MessageRefused
from farthing.btp_nips.filter_sets import check_filters
from farthing.btp_nips.models import TTL_MAX, TTL_MIN, Model
from farthing.connector.purse_accounts import offer_of, read_amount, read_key
from farthing.context import Agent
from farthing.ilp.condition import condition_of, quote_fulfillment
from farthing.ilp.packet import DATA_MAX
from farthing.ilp.purse import purse_address, purse_fulfillment
from farthing.nostr.events import Event, parse_event, verify
from farthing.nostr.filters import parse_filter
from farthing.nostr.kinds import MAX_KIND
from farthing.ports.http import BadRequest
from farthing.relay.price import encoded_size, offer, where_to_pay, writes_free

_PURSE_DATA_LENGTH = 32


class InvalidQuoteRequest(BadRequest):
    """The request is not a valid question for a price."""


def quote(agent: Agent, body: Mapping[str, Any]) -> dict[str, Any]:
    """The quote for a request's body. A body is one of
    - an event, bare or as `{"event": …}`;
    - `{"kind": …, "size": …, "tags": …}`, where tags is the number of different indexed tags;
    - `{"subscription": {"model": …, "filters": …, "ttl": …}}`;
    - `{"purse": …, "amount": …}`.
    Tags and amount may be left out."""
    if "subscription" in body:
        return quote_subscription(agent, body["subscription"])
    if "purse" in body:
        return quote_purse(agent, body["purse"], body.get("amount"))
    if "id" in body or "event_id" in body:  # the event itself, without an envelope
        body = {"event": body}
    if "event" not in body:
        return quote_size(agent, body.get("kind"), body.get("size"), body.get("tags", 0))
    if agent.settings.aether and isinstance(body["event"], dict) and "event_id" in body["event"]:
        # Imported here because the import is slow.
        from farthing.relay.aether.publish import quote as quote_aether

        return quote_aether(agent, body["event"])
    event = parse_event(body["event"])
    verify(event)
    return quote_event(agent, event)


def quote_event(agent: Agent, event: Event, payer: str = "") -> dict[str, Any]:
    """The price of storing the event, and the condition of the packet that pays for it. If the
    event is too large for a packet, only a purse can pay: the author's, or that of `payer`."""
    settings = agent.settings
    size = encoded_size(event)
    free = writes_free(agent, event.pubkey)
    price = 0 if free else settings.tariff.price_event(event, size)
    answer = _quote(agent, price, event.kind, size) | {"event_id": event.id}
    if price:
        answer["purse"] = offer_of(settings, payer or event.pubkey)
    if size > DATA_MAX:
        del answer["destination"], answer["endpoint"]
        return answer
    owner = settings.secret
    condition = condition_of(quote_fulfillment(owner, bytes.fromhex(event.id)))
    return answer | {"condition": condition.hex()}


def quote_size(agent: Agent, kind: object, size: object, tags: object = 0) -> dict[str, Any]:
    if type(kind) is not int or not 0 <= kind <= MAX_KIND:
        raise InvalidQuoteRequest(f"kind: expected a number from 0 to {MAX_KIND}")
    if type(size) is not int or not 0 <= size <= DATA_MAX:
        raise InvalidQuoteRequest(f"size: expected a number of bytes, at most {DATA_MAX}")
    if type(tags) is not int or not 0 <= tags <= DATA_MAX:
        raise InvalidQuoteRequest("tags: expected a number of indexed tags")
    return _quote(agent, agent.settings.tariff.price(kind, size, tags), kind, size)


def quote_subscription(agent: Agent, wanted: object) -> dict[str, Any]:
    settings = agent.settings
    if type(wanted) is not dict or type(wanted.get("filters")) is not list:
        raise InvalidQuoteRequest("subscription: expected an object with an array of filters")
    ttl = wanted.get("ttl")
    if ttl is not None and (type(ttl) is not int or not TTL_MIN <= ttl <= TTL_MAX):
        raise InvalidQuoteRequest(f"ttl: expected a number from {TTL_MIN} to {TTL_MAX}")
    try:
        model = Model(wanted.get("model", Model.ONE_TIME))
        filters = [parse_filter(each) for each in wanted["filters"]]
        check_filters(filters, settings.max_filters, settings.max_filter_values)
        quoted = settings.subscription_fees.quote(model, filters, ttl)
    except MessageRefused as refused:
        raise InvalidQuoteRequest(refused.text) from None
    except ValueError as error:  # the model or a filter is invalid
        raise InvalidQuoteRequest(str(error)) from None
    return quoted | where_to_pay(agent)


def quote_purse(agent: Agent, purse: object, amount: object) -> dict[str, Any]:
    """A plain packet that fills a purse, for a payer who is not its owner. The data is random, so
    that two payments are never taken for one."""
    key = bytes.fromhex(read_key(purse))
    owner = agent.settings.secret
    data = token_bytes(_PURSE_DATA_LENGTH)
    answer = offer(agent) | {
        "destination": purse_address(agent.settings.own_ilp_address, key),
        "data": b64encode(data).decode("ascii"),
        "condition": condition_of(purse_fulfillment(owner, key, data)).hex(),
    }
    return answer if amount is None else answer | {"amount": str(read_amount(amount))}


def _quote(agent: Agent, price: int, kind: int, size: int) -> dict[str, Any]:
    return offer(agent) | {"price": str(price), "kind": kind, "size": size}
