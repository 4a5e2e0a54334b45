"""An Aether event by HTTP: the answer to a publish."""

from collections.abc import Mapping
from typing import Any

from farthing.aether.errors import AetherError, Code
from farthing.aether.gateway import STATUS, SUPERSEDED, accepted, parse_post_event, refused
from farthing.aether.messages import Publish
from farthing.context import Agent
from farthing.handlers.calls import Event, Response, client_address
from farthing.handlers.web import json_answer
from farthing.relay.aether.publish import PaymentRequired, Superseded, publish
from farthing.store.table import Contended


def publish_answer(agent: Agent, event: Event, body: Mapping[str, Any]) -> Response:
    message = parse_post_event(body) or Publish(body.get("event"), body.get("capability"))
    try:
        done = publish(agent, message, ip=client_address(event))
    except AetherError as error:
        return _refused(error)
    except Contended as error:
        body = {"accepted": False, "error": Code.INTERNAL.value, "message": f"{error}, try again"}
        return json_answer(STATUS[Code.INTERNAL], body)
    return json_answer(200, accepted(done.event_id, done.message))


def _refused(error: AetherError) -> Response:
    body: dict[str, Any] = refused(error)
    if isinstance(error, PaymentRequired):
        body["quote"] = error.quote
    return json_answer(SUPERSEDED if isinstance(error, Superseded) else STATUS[error.code], body)
