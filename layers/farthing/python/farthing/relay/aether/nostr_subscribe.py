"""REQ with filters that say `"aether": true`: a Nostr client reads Aether events, which keep their
own form. Errors have the form of Nostr."""

from farthing.aether.errors import AetherError, InvalidMessage
from farthing.aether.gateway import parse_nostr_filters
from farthing.context import Agent
from farthing.nostr.messages import ClientMessage, Refused, eose
from farthing.relay.aether.channel import NOSTR_FORM
from farthing.relay.aether.event_frames import nostr_frame
from farthing.relay.aether.nostr_errors import prefix_of
from farthing.relay.aether.subscribe import subscribe
from farthing.relay.caller import Caller
from farthing.relay.opening import Overtaken
from farthing.store.subscriptions import request_order


def req(agent: Agent, caller: Caller, message: ClientMessage, subscription_id: str) -> str | None:
    """Send stored Aether events. Returns the EOSE."""
    given = message.parts[1:]
    try:
        if len(given) > agent.settings.max_filters:
            raise InvalidMessage(f"expected at most {agent.settings.max_filters} filters")
        filters = parse_nostr_filters(given) or ()
        listens = subscribe(
            agent, caller, subscription_id, filters, form=NOSTR_FORM,
            write=lambda json: nostr_frame(subscription_id, json),
        )  # fmt: skip
    except Overtaken:
        return None
    except AetherError as error:
        # CLOSED is about to be sent: no event may come after it.
        order = request_order(caller.time_ms) + 1
        agent.subscriptions.unsubscribe(caller.connection_id, subscription_id, order, agent.now)
        raise Refused(prefix_of(error), str(error)) from None
    return eose(subscription_id) if listens else None
