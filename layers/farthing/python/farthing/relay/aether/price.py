"""What an Aether event costs here, and the quote for it."""

from typing import Any

from farthing.aether import toon
from farthing.aether.events import Event
from farthing.context import Agent
from farthing.ilp.condition import condition_of, fulfillment_by
from farthing.ilp.packet import DATA_MAX
from farthing.ilp.toon import NotEncodable
from farthing.relay.aether.owner import owner_keys
from farthing.relay.offers import offer


class Unpayable(Exception):
    """No packet has room for the event, and nothing else pays for it."""


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
    price, size = price_of(agent, event), encoded_size(event)
    if price and size > DATA_MAX:
        raise Unpayable(f"expected at most {DATA_MAX} bytes in a packet, the event has {size}")
    condition = condition_of(fulfillment_by(owner_keys(agent).quote_key, bytes.fromhex(event.id)))
    return offer(agent) | {
        "price": str(price),
        "kind": event.kind,
        "size": size,
        "event_id": event.id,
        "condition": condition.hex(),
    }
