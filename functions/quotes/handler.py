"""POST /v1/quotes: the price of an event, or of a kind and a size."""

from farthing.connector.quotes import InvalidQuoteRequest, quote_event, quote_size
from farthing.handlers import runtime
from farthing.handlers.web import (
    Event,
    InvalidBody,
    Response,
    json_answer,
    json_body,
    problem,
)
from farthing.nostr.events import InvalidEvent, parse_event, verify

runtime.warm_up()


def handler(event: Event, _context: object) -> Response:
    agent = runtime.agent()
    try:
        body = json_body(event, agent.settings.max_message_length)
        if "event" not in body:
            return json_answer(200, quote_size(agent, body.get("kind"), body.get("size")))
        wanted = parse_event(body["event"])
        verify(wanted)
        return json_answer(200, quote_event(agent, wanted))
    except InvalidBody as error:
        return problem(error.status, str(error))
    except (InvalidQuoteRequest, InvalidEvent) as error:
        return problem(400, str(error))
