"""API Gateway's WebSocket events, turned into messages for the relay and back."""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, Final

from farthing.context import Agent
from farthing.handlers import runtime
from farthing.handlers.calls import Event, Handler, Response, client_address, flush
from farthing.nostr.messages import Verb
from farthing.ports.connections import Delivery
from farthing.relay.caller import Caller
from farthing.relay.receive import Answer, receive
from farthing.relay.socket_delivery import settle_deliveries
from farthing.surface import ANSWERED

DONE: Response = {"statusCode": 200}
# Attempts to post the last frame of an answer, for which the client waits. Each takes some seconds.
_POSTS = 3

SUBPROTOCOL_HEADER: Final = "Sec-WebSocket-Protocol"
AETHER_SUBPROTOCOL: Final = "aether.v1"
# The path at which the socket was opened, as the edge has seen it. Behind API Gateway a socket has
# no path.
PATH_HEADER: Final = "X-Farthing-Path"
AETHER_PATH: Final = "/v1/ws"


def message_handler(verbs: Mapping[Verb, Answer]) -> Handler:
    """A handler for the routes of these verbs."""
    runtime.warm_up()

    def handler(event: Event, _context: object) -> Response:
        agent = runtime.agent()
        reply = receive(agent, caller_of(agent, event), frame_of(event), verbs)
        response = DONE if reply is None else _answer(agent, event["requestContext"], reply)
        flush(agent)
        return response

    return handler


def _answer(agent: Agent, context: Mapping[str, Any], reply: str | bytes) -> Response:
    """Send the last frame of an answer: as the route's response if the route has one, which needs
    no further request, otherwise by a post."""
    if isinstance(reply, bytes):  # on one machine only
        return {"statusCode": 200, "body": b64encode(reply).decode(), "isBase64Encoded": True}
    if agent.connections.carries_replies or context["routeKey"] in ANSWERED:
        return {"statusCode": 200, "body": reply}
    connection_id = context["connectionId"]
    for _ in range(_POSTS):
        delivery = agent.connections.post(connection_id, [reply])
        if delivery is not Delivery.BUSY:
            break
    settle_deliveries(agent, [(connection_id, delivery)])
    return DONE


def offers_aether(connect: Event) -> bool:
    """Whether the client offers Aether's subprotocol."""
    offered = _header(connect, SUBPROTOCOL_HEADER).split(",")
    return AETHER_SUBPROTOCOL in map(str.strip, offered)


def opens_aether(connect: Event) -> bool:
    """Whether the client has opened the socket at Aether's own path."""
    return _header(connect, PATH_HEADER) == AETHER_PATH


def _header(connect: Event, name: str) -> str:
    """A header of a WebSocket handshake. Names of headers are not case-sensitive."""
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
        client_address(event),
    )


def frame_of(event: Event) -> str | bytes:
    """The text, or the octets of a binary frame. API Gateway accepts no binary frames."""
    body: str = event.get("body") or ""
    return b64decode(body) if event.get("isBase64Encoded") else body
