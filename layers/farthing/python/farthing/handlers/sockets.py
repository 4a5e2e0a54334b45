"""API Gateway's WebSocket events, turned into messages for the relay and back."""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Final

from farthing.context import Agent
from farthing.handlers import runtime
from farthing.handlers.calls import Event, Handler, Response, flush
from farthing.nostr.messages import Verb
from farthing.relay.caller import Caller
from farthing.relay.receive import Answer, receive

DONE: Response = {"statusCode": 200}

SUBPROTOCOL_HEADER: Final = "Sec-WebSocket-Protocol"
AETHER_SUBPROTOCOL: Final = "aether.v1"
# Set where `/v1/ws` was asked for: behind API Gateway a socket has no path.
AETHER_HEADER: Final = "X-Farthing-Aether"


def message_handler(verbs: Mapping[Verb, Answer]) -> Handler:
    """A handler for routes whose messages have these verbs."""
    runtime.warm_up()

    def handler(event: Event, _context: object) -> Response:
        agent = runtime.agent()
        reply = receive(agent, caller_of(agent, event), frame_of(event), verbs)
        flush(agent)
        # The body travels back to the client as one frame: it costs no @connections request.
        if isinstance(reply, bytes):
            body = b64encode(reply).decode()
            return {"statusCode": 200, "body": body, "isBase64Encoded": True}
        return DONE if reply is None else {"statusCode": 200, "body": reply}

    return handler


def offers_aether(connect: Event) -> bool:
    """Whether the client offers Aether's subprotocol."""
    offered = _header(connect, SUBPROTOCOL_HEADER).split(",")
    return AETHER_SUBPROTOCOL in map(str.strip, offered)


def opens_aether(connect: Event) -> bool:
    """Whether the client has opened the socket at Aether's own path."""
    return _header(connect, AETHER_HEADER) == "1"


def _header(connect: Event, name: str) -> str:
    """A header of a WebSocket handshake, whose names come in any case."""
    headers = connect.get("headers") or {}
    values = (value for key, value in headers.items() if key.lower() == name.lower())
    return next(values, "")


def caller_of(agent: Agent, event: Event) -> Caller:
    context = event["requestContext"]
    return Caller(
        agent,
        context["connectionId"],
        context["requestTimeEpoch"],
        context.get("domainName", ""),
        context.get("identity", {}).get("sourceIp"),
    )


def frame_of(event: Event) -> str | bytes:
    """Text, or octets of a binary frame. API Gateway takes none of the latter."""
    body: str = event.get("body") or ""
    return b64decode(body) if event.get("isBase64Encoded") else body
