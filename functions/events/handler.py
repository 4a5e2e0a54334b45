"""POST /v1/events: an event by plain HTTP. Stored where writing it is free, else its price."""

from farthing.connector.quotes import InvalidQuoteRequest, quote_event
from farthing.handlers import runtime
from farthing.handlers.sockets import flush
from farthing.handlers.web import (
    Event,
    InvalidBody,
    Response,
    json_answer,
    json_body,
    problem,
)
from farthing.nostr.events import InvalidEvent, parse_event, verify
from farthing.nostr.messages import Refused
from farthing.relay.policies import check_policies
from farthing.relay.price import price_of
from farthing.relay.publish import publish_unasked

runtime.warm_up()


def handler(event: Event, _context: object) -> Response:
    agent = runtime.agent()
    try:
        published = parse_event(json_body(event, agent.settings.max_message_length))
        verify(published)
        check_policies(agent, published)  # nobody pays for what would be refused all the same
        if price_of(agent.settings, published):
            return problem(402, "storing this event costs money", quote_event(agent, published))
        note = publish_unasked(agent, published)
    except InvalidBody as error:
        return problem(error.status, str(error))
    except (InvalidEvent, InvalidQuoteRequest) as error:
        return problem(400, str(error))
    except Refused as refused:
        return problem(403, str(refused))
    finally:
        flush(agent)
    return json_answer(200, {"id": published.id, "stored": True, "message": note})
