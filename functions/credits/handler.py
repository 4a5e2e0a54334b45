"""POST /v1/purses/{key}/credits: a payment processor reports a payment into a purse."""

from farthing.connector.purse_accounts import credit_purse
from farthing.context import Agent
from farthing.handlers.calls import Event, Response
from farthing.handlers.web import header, json_answer, json_body, parameter, web_handler


@web_handler
def handler(agent: Agent, event: Event) -> Response:
    counted = credit_purse(
        agent,
        header(event, "authorization"),
        parameter(event, "key"),
        header(event, "idempotency-key"),
        lambda: json_body(event, agent.settings.max_message_length),
    )
    return json_answer(201, counted)
