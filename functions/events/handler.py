"""POST /v1/events: store a Nostr or Aether event by plain HTTP, or answer with its price.

An event is stored if it is free, or if the purse of the key that has signed the request (NIP-98)
pays for it.
"""

from collections.abc import Mapping
from typing import Any

from farthing.connector.submit import (
    bare_event,
    for_both_protocols,
    is_aether,
    submit_event,
)
from farthing.context import Agent
from farthing.handlers.calls import Event, Response
from farthing.handlers.signed import signed_by
from farthing.handlers.web import body_of, header, json_answer, json_body, url_of, web_handler
from farthing.ports.http import HttpError


@web_handler
def handler(agent: Agent, event: Event) -> Response:
    try:
        body: Mapping[str, Any] = json_body(event, agent.settings.max_message_length)
        if is_aether(agent, body):
            # Imported here, because its libraries load slowly.
            from farthing.handlers.aether_events import publish_answer

            return publish_answer(agent, event, body)
        body = bare_event(body)
    except HttpError as error:
        raise for_both_protocols(error) from None
    authorization = header(event, "authorization")
    keys: tuple[str, ...] = ()
    if authorization:
        url, octets = url_of(agent, event), body_of(event)
        keys = (signed_by(agent, authorization, url=url, method="POST", body=octets),)
    return json_answer(200, submit_event(agent, body, keys))
