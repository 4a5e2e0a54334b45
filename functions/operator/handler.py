"""GET and POST /v1/operator: what the operator's console shows and changes (NIP-98, the owner)."""

from farthing.agent.console import act, overview
from farthing.context import Agent
from farthing.handlers.calls import Event, Response
from farthing.handlers.signed import check_owner
from farthing.handlers.web import json_answer, json_body, method_of, web_handler

_MOST = 64 * 1024


@web_handler
def handler(agent: Agent, event: Event) -> Response:
    check_owner(agent, event)
    answer = act(agent, json_body(event, _MOST)) if method_of(event) == "POST" else overview(agent)
    response = json_answer(200, answer)
    response["headers"]["Cache-Control"] = "no-store"
    return response
