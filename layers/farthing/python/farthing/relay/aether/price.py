"""The price of storing an Aether event, and its quote."""

from typing import Any

from farthing.aether import toon
from farthing.aether.events import Event
from farthing.context import Agent
from farthing.ilp.condition import condition_of, fulfillment_by
from farthing.ilp.packet import DATA_MAX
from farthing.ilp.toon import NotEncodable
from farthing.relay.aether.owner import owner_keys
from farthing.relay.price import offer


class Unpayable(Exception):
    """The event is too large for a packet, and there is no other way to pay for it."""


def price_of(agent: Agent, event: Event) -> int:
    """The price of an event. Only the owner's key always writes for free."""
    tariff = agent.settings.aether_tariff
    if not tariff.may_charge(event.kind) or event.pubkey == owner_keys(agent).pubkey:
        return 0
    return tariff.price_event(event, encoded_size(event))


def encoded_size(event: Event) -> int:
    try:
        return len(toon.dumps(event))
    except NotEncodable:
        # The event cannot be sent as TOON. The size of its JSON is close enough for a price.
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
