"""POST on the relay's URL: the relay management API (NIP-86), for the owner (NIP-98)."""

from farthing.context import Agent
from farthing.handlers.calls import Event, Response
from farthing.handlers.signed import check_owner
from farthing.handlers.web import header, json_answer, json_body, web_handler
from farthing.nostr.management import MEDIA_TYPE, InvalidCall, answer, failure, parse_call
from farthing.ports.http import HttpError
from farthing.relay.manage import manage

_MOST = 64 * 1024


@web_handler
def handler(agent: Agent, event: Event) -> Response:
    if header(event, "content-type").partition(";")[0].strip().lower() != MEDIA_TYPE:
        raise HttpError(415, f"expected the media type {MEDIA_TYPE}")
    check_owner(agent, event)
    try:
        result = answer(manage(agent, parse_call(json_body(event, _MOST))))
    except InvalidCall as error:
        result = failure(str(error))
    return json_answer(200, result, MEDIA_TYPE)
