"""What an Aether event costs here, and the quote for it."""

from typing import Any

from farthing.aether import toon
from farthing.aether.events import Event
from farthing.context import Agent
from farthing.ilp.packet import DATA_MAX
from farthing.ilp.toon import NotEncodable
from farthing.relay.aether.owner import owner_keys
from farthing.relay.price import unpayable
from farthing.relay.quotes import InvalidQuoteRequest, quote_for


def price_of(agent: Agent, event: Event) -> int:
    """Only the owner's own key writes for free whatever the prices are."""
    tariff = agent.settings.aether_tariff
    if not tariff.may_charge(event.kind) or event.pubkey == owner_keys(agent).pubkey:
        return 0
    return tariff.price_event(event, encoded_size(event))


def encoded_size(event: Event) -> int:
    try:
        return len(toon.dumps(event))
    except NotEncodable:  # no way to send it; its JSON comes near enough to name a price
        return len(event.to_json().encode())


def quote_event(agent: Agent, event: Event) -> dict[str, Any]:
    """Raises InvalidQuoteRequest for an event that no packet has room for."""
    price, size = price_of(agent, event), encoded_size(event)
    if price and size > DATA_MAX:
        raise InvalidQuoteRequest(unpayable(size))
    return quote_for(agent, price, event.kind, size, event.id)
