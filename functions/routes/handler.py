"""GET /v1/routes: peers and routes of this agent, with fees, for the page's drawing."""

from farthing.agent.route_map import SECONDS, RouteMap
from farthing.context import Agent
from farthing.handlers.calls import Event, Response
from farthing.handlers.web import json_answer, web_handler


@web_handler
def handler(agent: Agent, _event: Event) -> Response:
    response = json_answer(200, agent.part(RouteMap).read())
    response["headers"]["Cache-Control"] = f"public, max-age={SECONDS}"
    return response
