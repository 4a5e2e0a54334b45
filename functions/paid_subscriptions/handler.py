"""GET and DELETE /v1/purses/{key}/subscriptions: a key's paid subscriptions (NIP-98)."""

from farthing.connector.purse_accounts import find_key
from farthing.connector.subscriptions.accounts import close_subscription, list_subscriptions
from farthing.context import Agent
from farthing.handlers.calls import Event, Response
from farthing.handlers.signed import signed_by
from farthing.handlers.web import (
    header,
    json_answer,
    method_of,
    parameter,
    query_value,
    url_of,
    web_handler,
)


@web_handler
def handler(agent: Agent, event: Event) -> Response:
    proof, method = header(event, "authorization"), method_of(event)
    asker = signed_by(agent, proof, url=url_of(agent, event), method=method)
    key = find_key(parameter(event, "key"))
    if method == "DELETE":
        answer = close_subscription(agent, key, query_value(event, "id"), asker, proof)
    else:
        answer = list_subscriptions(agent, key, asker)
    response = json_answer(200, answer)
    response["headers"]["Cache-Control"] = "no-store"
    return response
