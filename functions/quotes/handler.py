"""POST /v1/quotes: the price of an event, or of a kind and a size."""

from farthing.connector.quotes import quote
from farthing.context import Agent
from farthing.handlers.calls import Event, Response
from farthing.handlers.web import json_answer, json_body, web_handler


@web_handler
def handler(agent: Agent, event: Event) -> Response:
    return json_answer(200, quote(agent, json_body(event, agent.settings.max_message_length)))
