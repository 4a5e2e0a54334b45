"""POST /v1/events: an event by plain HTTP, of Nostr or of Aether. Stored where writing it is free,
else its price."""

from farthing.connector.submit import is_aether, submit_event
from farthing.context import Agent
from farthing.handlers.calls import Event, Response
from farthing.handlers.web import json_answer, json_body, web_handler
from farthing.ports.http import BadRequest, HttpError


@web_handler
def handler(agent: Agent, event: Event) -> Response:
    try:
        body = json_body(event, agent.settings.max_message_length)
        if is_aether(agent, body):
            # Loaded where it is needed: its libraries take their time.
            from farthing.handlers.aether_web import publish_answer

            return publish_answer(agent, event, body)
        if "id" not in body:
            raise BadRequest("expected an event with an id (Nostr) or an event_id (Aether)")
    except HttpError as error:
        # Nobody knows whose it would have been: either can read the answer.
        code = "too_large" if error.status == 413 else "invalid_message"
        more = {"accepted": False, "error": code, "message": str(error)}
        raise HttpError(error.status, str(error), more) from None
    return json_answer(200, submit_event(agent, body))
