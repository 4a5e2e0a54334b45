"""The way of one message: parse it, count it, let its verb answer, and turn every failure into the
protocol's own error."""

import logging
from collections.abc import Callable, Mapping

from farthing.agent import Agent
from farthing.nostr.messages import (
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
)
from farthing.relay.caller import Caller
from farthing.relay.meter import Metric
from farthing.relay.publish import claimed_id

log = logging.getLogger("farthing")

Answer = Callable[[Agent, Caller, ClientMessage], str | None]


def receive(agent: Agent, caller: Caller, frame: str, verbs: Mapping[Verb, Answer]) -> str | None:
    """Handle a frame; what is returned is sent last."""
    try:
        message = _parse(agent, frame)
    except InvalidMessage as error:
        return _greeted(agent, caller, notice(f"{Prefix.INVALID}: {error}"))
    try:
        reply = verbs[message.verb](agent, caller, message)
    except InvalidMessage as error:
        reply = notice(f"{Prefix.INVALID}: {error}")
    except Refused as refused:
        reply = _refusal(message, str(refused))
    except Exception:
        log.exception("%s failed", message.verb)
        agent.meter.count(Metric.INTERNAL_ERRORS)
        reply = _refusal(message, f"{Prefix.ERROR}: internal error, try again")
    return _greeted(agent, caller, reply)


def _parse(agent: Agent, frame: str) -> ClientMessage:
    most = agent.settings.max_message_length
    if len(frame) > most or len(frame.encode(errors="replace")) > most:
        raise InvalidMessage(f"message over {most} bytes")
    return parse_message(frame)


def _refusal(message: ClientMessage, reason: str) -> str:
    """The form of refusal that a client of this verb waits for: another would leave it hanging."""
    match message.verb:
        case Verb.EVENT | Verb.AUTH:
            return ok(claimed_id(message), False, reason)
        case Verb.REQ | Verb.COUNT:
            return closed(message.subscription_id(), reason)
    return notice(reason)


def _greeted(agent: Agent, caller: Caller, reply: str | None) -> str | None:
    """See that the message is counted, even where it was refused early, and send the challenge with
    a connection's first one: before that nothing can be sent (NIP-42)."""
    try:
        connection = caller.arrive()
    except Refused:
        return reply
    except Exception:
        log.exception("could not count a message")
        return reply
    if connection.messages == 1 and connection.challenge:
        agent.connections.post(caller.connection_id, [auth_challenge(connection.challenge)])
    return reply
