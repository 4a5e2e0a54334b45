"""EVENT: check an event, pay for it from a purse if it is not free, and store it."""

from collections.abc import Sequence

from farthing.context import Agent
from farthing.nostr.events import Event, InvalidEvent, parse_event, verify
from farthing.nostr.kinds import Keeping, Kind
from farthing.nostr.messages import ClientMessage, Prefix, Refused, ok
from farthing.ports.meter import Metric
from farthing.relay.caller import Caller
from farthing.relay.fan_out import fan_out
from farthing.relay.policies import check_policies
from farthing.relay.price import charge_for
from farthing.relay.purses import check_protected, store_priced
from farthing.relay.refusals import note_refusal
from farthing.relay.removal import vanish_if_asked
from farthing.store.events import Outcome


def event(agent: Agent, caller: Caller, message: ClientMessage) -> str:
    """The OK that answers an EVENT, also if the event is invalid."""
    if agent.settings.aether and _is_aether(message):
        # Imported here because the import is slow.
        from farthing.relay.aether import nostr_publish

        return nostr_publish.event(agent, caller, message)
    try:
        published = parse_event(message.parts[0] if message.parts else None)
        verify(published)
        note = publish(agent, caller, published)
    except InvalidEvent as error:
        return _refusal(agent, caller, message, f"{Prefix.INVALID}: {error}")
    except Refused as refused:
        return _refusal(agent, caller, message, str(refused), author=published.pubkey)
    return ok(published.id, True, note)


def _is_aether(message: ClientMessage) -> bool:
    body = message.parts[0] if message.parts else None
    return isinstance(body, dict) and "event_id" in body


def _refusal(
    agent: Agent, caller: Caller, message: ClientMessage, reason: str, author: str = ""
) -> str:
    agent.meter.count(Metric.EVENTS_REFUSED)
    event_id = message.claimed_id
    note_refusal(agent, message.verb, reason, event=event_id, author=author, client=caller.ip)
    return ok(event_id, False, reason)


def publish(agent: Agent, caller: Caller, event: Event) -> str:
    """Store an event that came without a packet: free, or paid from a purse. Returns the text of a
    positive OK; raises Refused otherwise."""
    check_policies(agent, event)
    charge = charge_for(agent, event)
    if charge.price:
        identify = lambda: caller.arrive().proven  # noqa: E731
        return _stored(agent, event, store_priced(agent, event, charge, identify))
    if event.is_protected:
        check_protected(event, caller.arrive().proven)
    if event.keeping is Keeping.EPHEMERAL:
        caller.arrive()
        fan_out(agent, [event])
        return ""
    if caller.is_hasty:
        caller.arrive()
    return _stored(agent, event, agent.events.save(event, beside=caller.arrive))


def publish_alone(agent: Agent, event: Event, keys: Sequence[str]) -> str:
    """Publish without a connection. `keys` are the keys that have signed the request."""
    check_policies(agent, event)
    charge = charge_for(agent, event)
    if charge.price:
        return _stored(agent, event, store_priced(agent, event, charge, lambda: keys))
    check_protected(event, keys)
    if event.keeping is Keeping.EPHEMERAL:
        fan_out(agent, [event])
        return ""
    return _stored(agent, event, agent.events.save(event))


def _stored(agent: Agent, event: Event, outcome: Outcome) -> str:
    """The text of a positive OK for an event that has been saved."""
    match outcome:
        case Outcome.STORED:
            agent.meter.count(Metric.EVENTS_STORED)
            if event.kind == Kind.REQUEST_TO_VANISH:
                vanish_if_asked(agent, event, agent.settings.max_removed_before_ok)
            return ""
        case Outcome.DUPLICATE:
            return f"{Prefix.DUPLICATE}: already have this event"
        case Outcome.SUPERSEDED:
            raise Refused(Prefix.DUPLICATE, "a newer version is stored")
        case Outcome.DELETED:
            raise Refused(Prefix.BLOCKED, "its author has deleted this event")
