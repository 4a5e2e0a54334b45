"""API Gateway's WebSocket events, turned into messages for the relay and back."""

from collections.abc import Mapping
from typing import Any

from farthing.context import Agent
from farthing.handlers import runtime
from farthing.handlers.calls import Event, Handler, Response, flush
from farthing.nostr.messages import Verb
from farthing.relay.caller import Caller
from farthing.relay.receive import Answer, receive
from farthing.relay.socket_delivery import settle_deliveries
from farthing.surface import ANSWERED

DONE: Response = {"statusCode": 200}


def message_handler(verbs: Mapping[Verb, Answer]) -> Handler:
    """A handler for routes whose messages have these verbs."""
    runtime.warm_up()

    def handler(event: Event, _context: object) -> Response:
        agent = runtime.agent()
        reply = receive(agent, caller_of(agent, event), event.get("body") or "", verbs)
        response = DONE if reply is None else _answer(agent, event["requestContext"], reply)
        flush(agent)
        return response

    return handler


def _answer(agent: Agent, context: Mapping[str, Any], reply: str) -> Response:
    """Send the last frame of an answer: as the response where the route has one, which costs no
    request of its own, and else by a post like those before it."""
    if agent.connections.carries_replies or context["routeKey"] in ANSWERED:
        return {"statusCode": 200, "body": reply}
    connection_id = context["connectionId"]
    delivery = agent.connections.post(connection_id, [reply])
    settle_deliveries(agent, [(connection_id, delivery)])
    return DONE


def caller_of(agent: Agent, event: Event) -> Caller:
    context = event["requestContext"]
    return Caller(
        agent, context["connectionId"], context["requestTimeEpoch"], context.get("domainName", "")
    )
