"""Publishing by plain HTTP. A free event is stored. Any other event is paid from the purse of the
key that has signed the request, or the answer states its price."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from farthing.connector.quotes import quote_event
from farthing.context import Agent
from farthing.nostr.events import parse_event, verify
from farthing.ports.http import BadRequest, HttpError, NotSigned, PaymentRequired
from farthing.relay.publish import publish_alone
from farthing.relay.purses import AuthRequired, PaymentNeeded


def is_aether(agent: Agent, body: Mapping[str, Any]) -> bool:
    """Whether a body is for Aether: an event with an `event_id`, or an envelope without a Nostr
    event."""
    return agent.settings.aether and ("event_id" in body or ("event" in body and not _holds(body)))


def bare_event(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """The Nostr event in a body, without its envelope."""
    held: Mapping[str, Any] = body["event"] if _holds(body) else body
    if "id" not in held:
        raise BadRequest("expected an event with an id (Nostr) or an event_id (Aether)")
    return held


def for_both_protocols(error: HttpError) -> HttpError:
    """The error of a body whose protocol is not known, in a form that clients of both can read."""
    code = "too_large" if error.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE else "invalid_message"
    more = {"accepted": False, "error": code, "message": str(error)}
    return HttpError(error.status, str(error), more)


def _holds(body: Mapping[str, Any]) -> bool:
    """Whether a body is an envelope with a Nostr event in it."""
    held = body.get("event")
    return isinstance(held, dict) and "id" in held and "event_id" not in held


def submit_event(agent: Agent, body: object, keys: Sequence[str] = ()) -> dict[str, Any]:
    """Store or refuse a submitted event. `keys` are the keys that have signed the request."""
    event = parse_event(body)
    verify(event)
    try:
        note = publish_alone(agent, event, keys)
    except AuthRequired as refused:
        if keys:
            raise
        raise NotSigned(str(refused)) from None
    except PaymentNeeded as needed:
        offer = quote_event(agent, event, payer=keys[0] if keys else event.pubkey)
        raise PaymentRequired(str(needed), offer) from None
    return {
        "id": event.id,
        "stored": True,
        "message": note,
        # The same form as the answer to an Aether event.
        "accepted": True,
        "event_id": event.id,
    }
