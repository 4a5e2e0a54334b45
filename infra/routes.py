"""Which function serves what: messages, requests, and the clock."""

from farthing.nostr.messages import Verb

# Route key of the WebSocket API: the function that serves it.
SOCKET_ROUTES = {
    "$connect": "connect",
    "$disconnect": "disconnect",
    "$default": "default",
    Verb.EVENT.value: "event",
    Verb.REQ.value: "req",
    Verb.CLOSE.value: "close",
    Verb.COUNT.value: "count",
    Verb.AUTH.value: "auth",
    Verb.CHANGES.value: "changes",
    Verb.NEG_OPEN.value: "negentropy",
    Verb.NEG_MSG.value: "negentropy",
    Verb.NEG_CLOSE.value: "negentropy",
}
WEB_ROUTES = {
    "GET /": "info",
    "OPTIONS /": "info",
    "GET /healthz": "info",
    "POST /ilp": "ilp",
    "POST /v1/quotes": "quotes",
    "OPTIONS /v1/quotes": "quotes",
    "POST /v1/events": "events",
    "OPTIONS /v1/events": "events",
    "POST /accounts/{id}/settlements": "settlements",
}
# Where the edge leads to the HTTP API by the path alone; at the root it looks closer.
WEB_PATHS = ("/ilp", "/v1/*", "/accounts/*", "/healthz")
# Minutes between two runs.
SCHEDULES = {"sweeper": 1, "upkeep": 10}
# These go on when the budget is spent: they release what is held, number what is stored, and let
# clients go.
GOING_ON = frozenset({"close", "disconnect", "identity", "sequencer", "sweeper"})
