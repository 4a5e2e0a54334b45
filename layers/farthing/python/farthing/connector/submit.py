"""Publishing by plain HTTP: a free event is stored, any other is answered with its price."""

from collections.abc import Mapping
from typing import Any

from farthing.context import Agent
from farthing.nostr.events import parse_event, verify
from farthing.ports.http import PaymentRequired
from farthing.relay.policies import check_policies
from farthing.relay.price import price_of
from farthing.relay.publish import store_unpaid
from farthing.relay.quotes import quote_event


def is_aether(agent: Agent, body: Mapping[str, Any]) -> bool:
    """Whether a body is for Aether: an event with an `event_id`, or one in an envelope."""
    return agent.settings.aether and ("event_id" in body or "event" in body)


def submit_event(agent: Agent, body: object) -> dict[str, Any]:
    event = parse_event(body)
    verify(event)
    check_policies(agent, event)  # nobody pays for what would be refused all the same
    if price_of(agent.settings, event):
        raise PaymentRequired("storing this event costs money", quote_event(agent, event))
    note = store_unpaid(agent, event)
    return {"id": event.id, "stored": True, "message": note}
