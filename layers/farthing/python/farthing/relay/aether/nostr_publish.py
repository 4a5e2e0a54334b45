"""EVENT with an `event_id`: a Nostr client publishes an Aether event. The answer is a Nostr OK."""

from farthing.aether.errors import AetherError
from farthing.aether.messages import Publish
from farthing.context import Agent
from farthing.nostr.messages import ClientMessage, Prefix, ok
from farthing.relay.aether.nostr_errors import prefix_of
from farthing.relay.aether.publish import DUPLICATE, PaymentRequired, Superseded, publish
from farthing.relay.caller import Caller


def event(agent: Agent, caller: Caller, message: ClientMessage) -> str:
    """The OK that answers an EVENT."""
    body = message.parts[0]
    claimed = body.get("event_id") if isinstance(body, dict) else None
    try:
        done = publish(agent, Publish(body), ip=caller.ip, beside=caller.arrive)
    except PaymentRequired as error:
        endpoint = error.quote["endpoint"]
        return ok(
            error.quote["event_id"], False, f"{Prefix.RESTRICTED}: {error}; pay at {endpoint}"
        )
    except AetherError as error:
        event_id = claimed[:64] if isinstance(claimed, str) else ""
        prefix = Prefix.DUPLICATE if isinstance(error, Superseded) else prefix_of(error)
        return ok(event_id, False, f"{prefix}: {error}")
    note = f"{Prefix.DUPLICATE}: already have this event" if done.message == DUPLICATE else ""
    return ok(done.event_id, True, note)
