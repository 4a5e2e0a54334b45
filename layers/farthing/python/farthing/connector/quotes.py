"""A request for a quote: for an event of Nostr or of Aether, or for a kind and a size."""

from collections.abc import Mapping
from typing import Any

from farthing.context import Agent
from farthing.nostr.events import parse_event, verify
from farthing.relay.quotes import quote_event, quote_size


def quote(agent: Agent, body: Mapping[str, Any]) -> dict[str, Any]:
    """The quote for a request's body: `{"event": …}`, or `{"kind": …, "size": …, "tags": …}`, where
    tags, if there, is the number of different indexed tags."""
    if "event" not in body:
        return quote_size(agent, body.get("kind"), body.get("size"), body.get("tags", 0))
    if agent.settings.aether and isinstance(body["event"], dict) and "event_id" in body["event"]:
        # Loaded where it is needed: its libraries take their time.
        from farthing.relay.aether.publish import quote as quote_aether

        return quote_aether(agent, body["event"])
    event = parse_event(body["event"])
    verify(event)
    return quote_event(agent, event)
