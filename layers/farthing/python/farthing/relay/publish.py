"""EVENT: check an event, see that it is free or paid from a purse, and store it."""

from collections.abc import Sequence

from farthing.context import Agent
from farthing.nostr.events import Event, InvalidEvent, parse_event, verify
from farthing.nostr.kinds import Keeping
from farthing.nostr.messages import ClientMessage, Prefix, Refused, ok
from farthing.ports.meter import Metric
from farthing.relay.caller import Caller
from farthing.relay.fan_out import fan_out
from farthing.relay.policies import check_policies
from farthing.relay.price import charge_for
from farthing.relay.purses import check_protected, store_priced
from farthing.store.events import Outcome


def event(agent: Agent, caller: Caller, message: ClientMessage) -> str:
    """The OK that answers an EVENT, whatever is wrong with it."""
    claimed = claimed_id(message)
    if agent.settings.aether and _is_aether(message):
        # Loaded where it is needed: its libraries take their time.
        from farthing.relay.aether import nostr_publish

        return nostr_publish.event(agent, caller, message)
    try:
        published = parse_event(message.parts[0] if message.parts else None)
        verify(published)
        note = publish(agent, caller, published)
    except InvalidEvent as error:
        return _refusal(agent, claimed, f"{Prefix.INVALID}: {error}")
    except Refused as refused:
        return _refusal(agent, claimed, str(refused))
    return ok(published.id, True, note)


def _is_aether(message: ClientMessage) -> bool:
    body = message.parts[0] if message.parts else None
    return isinstance(body, dict) and "event_id" in body


def claimed_id(message: ClientMessage) -> str:
    """What an answer is addressed to, even where the rest makes no sense."""
    body = message.parts[0] if message.parts else None
    claimed = body.get("id") if isinstance(body, dict) else None
    return claimed[:64] if isinstance(claimed, str) else ""


def _refusal(agent: Agent, event_id: str, reason: str) -> str:
    agent.meter.count(Metric.EVENTS_REFUSED)
    return ok(event_id, False, reason)


def publish(agent: Agent, caller: Caller, event: Event) -> str:
    """Store an event that came without a packet: free, or paid from a purse. What OK says beside
    true; Refused otherwise."""
    check_policies(agent, event)
    charge = charge_for(agent, event)
    if charge.price:
        identify = lambda: caller.arrive().proven  # noqa: E731
        return outcome_note(agent, store_priced(agent, event, charge, identify))
    if event.is_protected:
        check_protected(event, caller.arrive().proven)
    if event.keeping is Keeping.EPHEMERAL:
        caller.arrive()
        fan_out(agent, [event])
        return ""
    if caller.is_hasty:
        caller.arrive()
    return outcome_note(agent, agent.events.save(event, beside=caller.arrive))


def publish_alone(agent: Agent, event: Event, keys: Sequence[str]) -> str:
    """The same without a connection. `keys` are those that the request has proved."""
    check_policies(agent, event)
    charge = charge_for(agent, event)
    if charge.price:
        return outcome_note(agent, store_priced(agent, event, charge, lambda: keys))
    check_protected(event, keys)
    if event.keeping is Keeping.EPHEMERAL:
        fan_out(agent, [event])
        return ""
    return outcome_note(agent, agent.events.save(event))


def outcome_note(agent: Agent, outcome: Outcome) -> str:
    match outcome:
        case Outcome.STORED:
            agent.meter.count(Metric.EVENTS_STORED)
            return ""
        case Outcome.DUPLICATE:
            return f"{Prefix.DUPLICATE}: already have this event"
        case Outcome.SUPERSEDED:
            raise Refused(Prefix.DUPLICATE, "a newer version is stored")
        case Outcome.DELETED:
            raise Refused(Prefix.BLOCKED, "its author has deleted this event")
