"""GET /purse/{key}, /purse, /.well-known/pay: payment pointer for wallets (SPSP), or a page."""

from farthing.connector.purse_accounts import find_key, spsp_answer
from farthing.connector.purse_page import HEADERS, purse_page, purses_page
from farthing.context import Agent
from farthing.handlers.calls import Event, Response
from farthing.handlers.web import (
    accepts,
    html_answer,
    json_answer,
    path_of,
    query_value,
    redirect,
    web_handler,
)
from farthing.ilp import spsp
from farthing.ports.http import NotFound

OWNERS = "/.well-known/pay"


@web_handler
def handler(agent: Agent, event: Event) -> Response:
    try:
        return _serve(agent, event)
    except NotFound as error:
        if not accepts(event, "text/html"):
            raise
        return html_answer(404, purses_page(agent.settings, trouble=str(error)), HEADERS)


def _serve(agent: Agent, event: Event) -> Response:
    settings = agent.settings
    named = (event.get("pathParameters") or {}).get("key", "")
    if not named and path_of(event) != OWNERS:
        chosen = query_value(event, "key").strip()
        if chosen:
            return redirect(settings.purse_url(find_key(chosen)))
        return html_answer(200, purses_page(settings), HEADERS)
    key = find_key(named) if named else settings.pubkey
    if accepts(event, spsp.MEDIA_TYPE):
        response = json_answer(200, spsp_answer(agent, key), spsp.MEDIA_TYPE)
    else:
        response = html_answer(200, purse_page(settings, key), HEADERS)
    response["headers"].update({"Cache-Control": spsp.CACHE_CONTROL, "Vary": "Accept"})
    return response
