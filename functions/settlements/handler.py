"""POST /accounts/{id}/settlements: a settlement engine reports a peer's payment (RFC 0038)."""

from farthing.connector.settlement import check_engine, receive_settlement
from farthing.context import Agent
from farthing.handlers.calls import Event, Response
from farthing.handlers.web import header, json_answer, json_body, parameter, web_handler


@web_handler
def handler(agent: Agent, event: Event) -> Response:
    account = check_engine(agent, header(event, "authorization"), parameter(event, "id"))
    body = json_body(event, agent.settings.max_message_length)
    key = header(event, "idempotency-key")
    return json_answer(201, receive_settlement(agent, account, key, body))
