"""AUTH (NIP-42): a client proves that it holds a key."""

from urllib.parse import urlsplit

from farthing.context import Agent
from farthing.nostr.events import Event, InvalidEvent, parse_event, verify
from farthing.nostr.kinds import Kind
from farthing.nostr.messages import ClientMessage, Prefix, Refused, ok
from farthing.relay.caller import Caller
from farthing.store.sessions import Connection

_FRESH_SECONDS = 600


def auth(agent: Agent, caller: Caller, message: ClientMessage) -> str:
    try:
        event = parse_event(message.parts[0] if message.parts else None)
        verify(event)
        connection = caller.arrive()
        _check(agent, connection, event)
    except InvalidEvent as error:
        return ok(message.claimed_id, False, f"{Prefix.INVALID}: {error}")
    except Refused as refused:
        return ok(message.claimed_id, False, str(refused))
    agent.sessions.authenticate(connection, event.pubkey)
    return ok(event.id, True)


def _check(agent: Agent, connection: Connection, event: Event) -> None:
    most = agent.settings.max_auth_keys
    if len(connection.pubkeys | {event.pubkey}) > most:
        raise Refused(Prefix.RESTRICTED, f"expected at most {most} keys on one connection")
    if event.kind != Kind.CLIENT_AUTH:
        raise Refused(Prefix.INVALID, "expected an event of kind 22242")
    if abs(event.created_at - agent.now) > _FRESH_SECONDS:
        raise Refused(Prefix.INVALID, "expected the present time as created_at")
    if not connection.challenge or event.first_value("challenge") != connection.challenge:
        raise Refused(Prefix.INVALID, "expected the challenge that was sent")
    if _host(event.first_value("relay") or "") not in _own_hosts(agent, connection):
        raise Refused(Prefix.INVALID, "expected the URL of this relay in the relay tag")


def _own_hosts(agent: Agent, connection: Connection) -> set[str]:
    """Our host in the settings, or else the host of the client's request."""
    configured = _host(agent.settings.relay_url)
    return {configured} if configured else {_host(f"ws://{connection.host}")}


def _host(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""
