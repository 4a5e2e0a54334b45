"""A request for a quote: for an event of Nostr or of Aether, for a kind and a size, or for a paid
subscription."""

from collections.abc import Mapping
from typing import Any

from farthing.btp_nips.errors import MessageRefused
from farthing.btp_nips.filter_sets import check_filters
from farthing.btp_nips.messages import TTL_MAX, TTL_MIN, Model
from farthing.context import Agent
from farthing.nostr.events import parse_event, verify
from farthing.nostr.filters import parse_filter
from farthing.relay.quotes import InvalidQuoteRequest, quote_event, quote_size, where_to_pay


def quote(agent: Agent, body: Mapping[str, Any]) -> dict[str, Any]:
    """The quote for a request's body: `{"event": …}`, or `{"kind": …, "size": …, "tags": …}`, where
    tags, if there, is the number of different indexed tags, or
    `{"subscription": {"model": …, "filters": …, "ttl": …}}`."""
    if "subscription" in body:
        return quote_subscription(agent, body["subscription"])
    if "event" not in body:
        return quote_size(agent, body.get("kind"), body.get("size"), body.get("tags", 0))
    if agent.settings.aether and isinstance(body["event"], dict) and "event_id" in body["event"]:
        # Loaded where it is needed: its libraries take their time.
        from farthing.relay.aether.publish import quote as quote_aether

        return quote_aether(agent, body["event"])
    event = parse_event(body["event"])
    verify(event)
    return quote_event(agent, event)


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
    return quoted | where_to_pay(agent)
