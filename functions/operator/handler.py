"""GET and POST /v1/operator: data and actions of the operator's console (NIP-98, owner only)."""

from farthing.agent.console import act, overview
from farthing.context import Agent
from farthing.handlers.calls import Event, Response
from farthing.handlers.signed import check_owner
from farthing.handlers.web import json_answer, json_body, method_of, web_handler
from farthing.ports.figures import Watched
from farthing.surface import QUEUES, STREAMS, functions

_MOST = 64 * 1024
_WATCHED = Watched(
    functions=functions(),
    queues=[queue.name for queue in QUEUES],
    failures=[each.failures for each in (*STREAMS, *QUEUES)],
)


@web_handler
def handler(agent: Agent, event: Event) -> Response:
    check_owner(agent, event)
    if method_of(event) == "POST":
        answer = act(agent, json_body(event, _MOST))
    else:
        answer = overview(agent, _WATCHED)
    response = json_answer(200, answer)
    response["headers"]["Cache-Control"] = "no-store"
    return response
