"""GET /v1/stream: the events of a subscription, as server-sent events."""

from farthing.context import Agent
from farthing.handlers.aether_web import check_served, stream_answer, stream_response
from farthing.handlers.calls import Event, Response
from farthing.handlers.web import method_of, web_handler


@web_handler
def handler(agent: Agent, event: Event) -> Response:
    check_served(agent)
    return stream_response() if method_of(event) == "HEAD" else stream_answer(agent, event)
