"""POST /v1/events: an event by plain HTTP. Stored where writing it is free, else its price."""

from farthing.connector.submit import submit_event
from farthing.context import Agent
from farthing.handlers.calls import Event, Response
from farthing.handlers.web import json_answer, json_body, web_handler


@web_handler
def handler(agent: Agent, event: Event) -> Response:
    body = json_body(event, agent.settings.max_message_length)
    return json_answer(200, submit_event(agent, body))
