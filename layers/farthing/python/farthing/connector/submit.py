"""Publishing by plain HTTP. A free event is stored. Any other is paid from the purse of the key
that has signed the request, or answered with its price."""

from collections.abc import Mapping, Sequence
from typing import Any

from farthing.connector.quotes import quote_event
from farthing.context import Agent
from farthing.nostr.events import parse_event, verify
from farthing.ports.http import PaymentRequired
from farthing.relay.publish import publish_alone
from farthing.relay.purses import PaymentNeeded


def is_aether(agent: Agent, body: Mapping[str, Any]) -> bool:
    """Whether a body is for Aether: an event with an `event_id`, or one in an envelope."""
    return agent.settings.aether and ("event_id" in body or "event" in body)


def submit_event(agent: Agent, body: object, keys: Sequence[str] = ()) -> dict[str, Any]:
    """`keys` are those that have signed the request."""
    event = parse_event(body)
    verify(event)
    try:
        note = publish_alone(agent, event, keys)
    except PaymentNeeded as needed:
        offer = quote_event(agent, event, payer=keys[0] if keys else event.pubkey)
        raise PaymentRequired(str(needed), offer) from None
    return {"id": event.id, "stored": True, "message": note}
