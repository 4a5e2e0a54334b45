"""GET /v1/purses/{key}: balance and movements of a purse, for its key and the owner (NIP-98)."""

from farthing.connector.purse_accounts import find_key, show_purse
from farthing.context import Agent
from farthing.handlers.calls import Event, Response
from farthing.handlers.signed import signed_by
from farthing.handlers.web import (
    header,
    json_answer,
    method_of,
    parameter,
    url_of,
    web_handler,
)


@web_handler
def handler(agent: Agent, event: Event) -> Response:
    asker = signed_by(
        agent,
        header(event, "authorization"),
        url=url_of(agent, event),
        method=method_of(event),
    )
    response = json_answer(200, show_purse(agent, find_key(parameter(event, "key")), asker))
    response["headers"]["Cache-Control"] = "no-store"
    return response
