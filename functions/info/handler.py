"""GET on the relay's URL: the relay information document (NIP-11), and a health check."""

from farthing.handlers import runtime
from farthing.handlers.web import Event, Response, answer, header, json_answer, method_of, path_of
from farthing.relay.information import relay_information

runtime.warm_up()

NOSTR_JSON = "application/nostr+json"


def handler(event: Event, _context: object) -> Response:
    settings = runtime.agent().settings
    if method_of(event) == "OPTIONS":
        return answer(204)
    if path_of(event) == "/healthz":
        return json_answer(200, {"status": "ok"})
    if NOSTR_JSON in header(event, "accept"):
        return json_answer(200, relay_information(settings), NOSTR_JSON)
    return answer(
        200,
        f"{settings.name}: a Nostr relay and Interledger connector.\n"
        f"Connect a Nostr client to this URL, or ask for {NOSTR_JSON}.\n",
    )
