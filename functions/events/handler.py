"""POST /v1/events: an event of Nostr or of Aether by plain HTTP. It is stored where it is free, or
paid from the purse of the key that has signed the request (NIP-98), and else answered with its
price."""

from farthing.connector.purse_accounts import signed_by
from farthing.connector.submit import is_aether, submit_event
from farthing.context import Agent
from farthing.handlers.calls import Event, Response
from farthing.handlers.web import body_of, header, json_answer, json_body, url_of, web_handler
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
    authorization = header(event, "authorization")
    keys: tuple[str, ...] = ()
    if authorization:
        url, octets = url_of(agent, event), body_of(event)
        keys = (signed_by(agent, authorization, url=url, method="POST", body=octets),)
    return json_answer(200, submit_event(agent, body, keys))
