"""POST /accounts/{id}/settlements: a settlement engine tells what a peer has paid (RFC 0038)."""

import hmac

from farthing.connector.settlement import InvalidSettlement, receive_settlement
from farthing.handlers import runtime
from farthing.handlers.web import (
    Event,
    InvalidBody,
    Response,
    header,
    json_answer,
    json_body,
    path_of,
    problem,
)
from farthing.store.settlements import KeyUsedDifferently

runtime.warm_up()


def handler(event: Event, _context: object) -> Response:
    agent = runtime.agent()
    token = agent.settings.settlement_token
    shown = header(event, "authorization").removeprefix("Bearer ").encode(errors="replace")
    if not token or not hmac.compare_digest(shown, token.encode()):
        return problem(401, "the settlement engine's token is needed")
    parts = path_of(event).strip("/").split("/")
    is_path = len(parts) == 3 and parts[1] and parts[2] == "settlements"
    if not is_path or not agent.ledger.has_account(account := parts[1]):
        return problem(404, "no such account")
    try:
        key = header(event, "idempotency-key")
        body = json_body(event, agent.settings.max_message_length)
        return json_answer(201, receive_settlement(agent, account, key, body))
    except InvalidBody as error:
        return problem(error.status, str(error))
    except InvalidSettlement as error:
        return problem(400, str(error))
    except KeyUsedDifferently as error:
        return problem(409, str(error))
