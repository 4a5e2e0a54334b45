"""The relay information document (NIP-11), the health check, and requests that no route matches."""

from typing import Any

from farthing.context import Agent
from farthing.handlers.calls import Event, Response
from farthing.handlers.unmatched import answer_unmatched
from farthing.handlers.web import answer, header, json_answer, method_of, path_of, web_handler
from farthing.relay.information import relay_information
from farthing.relay.moderation import settings_in_force
from farthing.surface import DEFAULT

NOSTR_JSON = "application/nostr+json"


@web_handler
def handler(agent: Agent, event: Event) -> Response:
    if event["routeKey"] == DEFAULT:
        return answer_unmatched(method_of(event), path_of(event))
    if path_of(event) == "/healthz":
        return json_answer(200, {"status": "ok"})
    accepted = header(event, "accept").lower()
    if NOSTR_JSON in accepted or "text/" not in accepted:
        response = json_answer(200, _information(agent), NOSTR_JSON)
    else:
        response = answer(
            200,
            f"{settings_in_force(agent).name}: a Nostr relay and Interledger connector.\n"
            f"Connect a Nostr client to this URL, or ask for {NOSTR_JSON}.\n",
        )
    response["headers"]["Vary"] = "Accept"
    return response


def _information(agent: Agent) -> dict[str, Any]:
    return relay_information(settings_in_force(agent), searches=agent.search.is_on)
