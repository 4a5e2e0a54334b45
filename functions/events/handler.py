"""POST /v1/events: an event by plain HTTP. It is stored where it is free or paid from the purse of
the key that has signed the request (NIP-98), and else answered with its price."""

from farthing.connector.purse_accounts import signed_by
from farthing.connector.submit import submit_event
from farthing.context import Agent
from farthing.handlers.calls import Event, Response
from farthing.handlers.web import body_of, header, json_answer, json_body, url_of, web_handler


@web_handler
def handler(agent: Agent, event: Event) -> Response:
    body = json_body(event, agent.settings.max_message_length)
    authorization = header(event, "authorization")
    keys: tuple[str, ...] = ()
    if authorization:
        url, octets = url_of(agent, event), body_of(event)
        keys = (signed_by(agent, authorization, url=url, method="POST", body=octets),)
    return json_answer(200, submit_event(agent, body, keys))
