"""API Gateway's WebSocket events, turned into messages for the relay and back."""

from collections.abc import Mapping

from farthing.context import Agent
from farthing.handlers import runtime
from farthing.handlers.calls import Event, Handler, Response, flush
from farthing.nostr.messages import Verb
from farthing.relay.caller import Caller
from farthing.relay.receive import Answer, receive

DONE: Response = {"statusCode": 200}


def message_handler(verbs: Mapping[Verb, Answer]) -> Handler:
    """A handler for routes whose messages have these verbs."""
    runtime.warm_up()

    def handler(event: Event, _context: object) -> Response:
        agent = runtime.agent()
        reply = receive(agent, caller_of(agent, event), event.get("body") or "", verbs)
        flush(agent)
        # The body travels back to the client as one frame: it costs no @connections request.
        return DONE if reply is None else {"statusCode": 200, "body": reply}

    return handler


def caller_of(agent: Agent, event: Event) -> Caller:
    context = event["requestContext"]
    return Caller(
        agent, context["connectionId"], context["requestTimeEpoch"], context.get("domainName", "")
    )
