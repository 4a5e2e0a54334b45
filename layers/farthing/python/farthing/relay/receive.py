"""The handling of one message: parse it, count it, call its verb, and turn every failure into an
error of the protocol."""

import logging
from collections.abc import Callable, Mapping

from farthing.context import Agent
from farthing.nostr.feed import changes_error
from farthing.nostr.messages import (
    MAX_SUBSCRIPTION_ID,
    ClientMessage,
    InvalidMessage,
    Prefix,
    Refused,
    Verb,
    auth_challenge,
    closed,
    notice,
    ok,
    parse_message,
    refusable_message,
)
from farthing.nostr.sync import neg_error
from farthing.ports.meter import Metric
from farthing.relay.caller import Caller, MarkedAether
from farthing.relay.message_length import check_length
from farthing.relay.refusals import note_refusal
from farthing.store.subscriptions import request_order
from farthing.store.table import Contended

log = logging.getLogger("farthing")

Answer = Callable[[Agent, Caller, ClientMessage], str | None]


def receive(
    agent: Agent, caller: Caller, frame: str | bytes, verbs: Mapping[Verb, Answer]
) -> str | bytes | None:
    """Handle a frame. The returned frame is sent last. A text frame that begins with a bracket is a
    Nostr message; every other frame is tried as an Aether message."""
    if not _is_nostr(frame) and agent.settings.aether:
        # Imported here because the import is slow.
        from farthing.aether.errors import NotAether
        from farthing.relay.aether.receive import receive as receive_aether

        try:
            return receive_aether(agent, caller, frame)
        except NotAether:
            caller.speaks_nostr = True
    try:
        return _receive(agent, caller, frame if isinstance(frame, str) else "", verbs)
    except MarkedAether:
        from farthing.relay.aether.receive import refuse_nostr

        return refuse_nostr(agent)


def _is_nostr(frame: str | bytes) -> bool:
    return isinstance(frame, str) and frame.lstrip()[:1] == "["


def _receive(agent: Agent, caller: Caller, frame: str, verbs: Mapping[Verb, Answer]) -> str | None:
    try:
        message = parse_message(frame)
    except InvalidMessage as error:
        _end_unread(agent, caller, refusable_message(frame))
        return _greeted(agent, caller, _unread(frame, f"{Prefix.INVALID}: {error}"))
    try:
        _check_length(agent, caller, message)
        if message.verb not in verbs:
            raise Refused(Prefix.ERROR, f"{message.verb} is not served here")
        reply = verbs[message.verb](agent, caller, message)
    except InvalidMessage as error:
        reply = notice(f"{Prefix.INVALID}: {error}")
    except Refused as refused:
        note_refusal(agent, message.verb, str(refused), client=caller.ip)
        reply = _refusal(message, str(refused))
    except MarkedAether:
        raise
    except Contended as error:
        reply = _refusal(message, f"{Prefix.ERROR}: {error}, try again")
    except Exception:
        log.exception("%s failed", message.verb)
        agent.meter.count(Metric.INTERNAL_ERRORS)
        reply = _refusal(message, f"{Prefix.ERROR}: internal error, try again")
    return _greeted(agent, caller, reply)


def _check_length(agent: Agent, caller: Caller, message: ClientMessage) -> None:
    try:
        check_length(agent.settings.max_message_length, message.frame)
    except Refused:
        _end_unread(agent, caller, message)
        raise


def _end_unread(agent: Agent, caller: Caller, message: ClientMessage | None) -> None:
    """End the subscription that a refused request would replace. The refusal closes its id, and no
    event may come after it."""
    if message is None or message.verb not in (Verb.REQ, Verb.CHANGES):
        return
    named = message.parts[0] if message.parts else None
    if isinstance(named, str) and 1 <= len(named) <= MAX_SUBSCRIPTION_ID:
        order = request_order(caller.time_ms) + 1
        agent.subscriptions.unsubscribe(caller.connection_id, named, order, agent.now)


def refuse(agent: Agent, frame: str | bytes, refused: Refused, *, is_marked: bool) -> str | bytes:
    """The answer to a frame that is refused before any work for it. `is_marked` says whether the
    connection is marked as Aether."""
    if agent.settings.aether and (is_marked or not _is_nostr(frame)):
        # Imported here because the import is slow.
        from farthing.aether.errors import NotAether
        from farthing.relay.aether.receive import refuse as refuse_aether
        from farthing.relay.aether.receive import refuse_nostr

        try:
            return refuse_aether(frame, refused)
        except NotAether:
            if is_marked:
                return refuse_nostr(agent)
    return _refuse_message(frame if isinstance(frame, str) else "", refused)


def _refuse_message(frame: str, refused: Refused) -> str:
    try:
        message = parse_message(frame)
    except InvalidMessage:
        return _unread(frame, str(refused))
    return _refusal(message, str(refused))


def _unread(frame: str, reason: str) -> str:
    """The refusal of a frame that is no message."""
    message = refusable_message(frame)
    return notice(reason) if message is None else _refusal(message, reason)


def _refusal(message: ClientMessage, reason: str) -> str:
    """The refusal in the form that belongs to the verb. A client would ignore another form and keep
    waiting."""
    match message.verb:
        case Verb.EVENT | Verb.AUTH:
            return ok(message.claimed_id, False, reason)
        case Verb.REQ | Verb.COUNT if message.parts and isinstance(message.parts[0], str):
            return closed(message.parts[0], reason)
        case Verb.NEG_OPEN | Verb.NEG_MSG if message.parts and isinstance(message.parts[0], str):
            return neg_error(message.parts[0], reason)
        case Verb.CHANGES if message.parts and isinstance(message.parts[0], str):
            return changes_error(message.parts[0], reason)
    return notice(reason)


def _greeted(agent: Agent, caller: Caller, reply: str | None) -> str | None:
    """Count the message, even if it was refused early, and send the challenge (NIP-42) with a
    connection's first message: nothing can be sent before it."""
    try:
        connection = caller.arrive()
        is_first = connection.messages == 1 or connection.is_ungreeted
        if is_first and connection.challenge:
            agent.connections.post(caller.connection_id, [auth_challenge(connection.challenge)])
        if connection.is_ungreeted:
            agent.sessions.put_off_greeting(connection.id, is_ungreeted=False)
    except Refused:
        pass  # the message already has its answer, or gets none
    except MarkedAether:
        raise
    except Exception:
        log.exception("a message could not be counted, or its challenge not sent")
    return reply
