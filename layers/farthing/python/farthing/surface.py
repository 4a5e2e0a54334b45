"""The surface of the agent: every HTTP route, WebSocket message, stream, queue and schedule, and
the function that serves it.

The CDK app, the local server and the table of routes in docs/developers.md are made from the tables
here. A new route is one line in `ROUTES` and a folder in `functions/`.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import NamedTuple
from urllib.parse import unquote

from farthing.nostr.messages import Verb
from farthing.store.table import Table

CONNECT, DISCONNECT, DEFAULT = "$connect", "$disconnect", "$default"
# Serves every request that no route matches: preflights (OPTIONS), wrong methods, unknown paths.
DEFAULT_FUNCTION = "info"


class Work(Enum):
    """The kind of work of a call, so that one machine can run the call where it delays no other."""

    READ = "read"  # short: a thread runs it
    WRITE = "write"  # ends with a commit, and many calls can share one
    LONG = "long"  # may take seconds


class Route(NamedTuple):
    """One HTTP route. Parameters in the path are in braces and match one segment. A last parameter
    with a plus matches the whole rest of the path."""

    method: str
    path: str
    function: str
    about: str
    work: Work = Work.READ

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that the route serves: GET includes HEAD."""
        return ("GET", "HEAD") if self.method == "GET" else (self.method,)

    @property
    def keys(self) -> tuple[str, ...]:
        """The route keys of API Gateway."""
        return tuple(f"{method} {self.path}" for method in self.methods)


ROUTES = (
    Route("GET", "/", "info", "relay information document (NIP-11)"),
    Route("POST", "/", "manage", "relay management API for the owner (NIP-86, NIP-98)"),
    Route("GET", "/healthz", "info", "health check"),
    Route("POST", "/ilp", "ilp", "ILP packet from a peer (RFC 0035)", Work.WRITE),
    Route("POST", "/v1/quotes", "quotes",
          "price of an event or of a kind and a size, or a payment into a purse"),
    Route("GET", "/v1/routes", "routes", "peers and routes from here, with fees, for the page"),
    Route("POST", "/v1/events", "events",
          "store an event that is free or paid from a purse (NIP-98), or learn its price",
          Work.WRITE),
    Route("POST", "/v1/subscriptions", "subscriptions", "subscribe to Aether events, for a stream"),
    Route("DELETE", "/v1/subscriptions/{id+}", "subscriptions", "end a subscription by HTTP"),
    Route("GET", "/v1/stream", "stream", "events of a subscription, as server-sent events"),
    Route("GET", "/purse", "purse", "page about purses: how to pay in advance"),
    Route("GET", "/purse/{key}", "purse",
          "purse of a key: payment pointer for wallets (SPSP), page for people"),
    Route("GET", "/.well-known/pay", "purse", "payment pointer of the owner's purse (SPSP)"),
    Route("GET", "/v1/purses/{key}", "purses",
          "what a purse holds, for its own key and the owner (NIP-98)"),
    Route("GET", "/v1/purses/{key}/subscriptions", "paid_subscriptions",
          "paid subscriptions of a key, for the key and the owner (NIP-98)"),
    Route("DELETE", "/v1/purses/{key}/subscriptions", "paid_subscriptions",
          "end the paid subscription that `?id=` names; its credit goes to the purse (NIP-98)",
          Work.WRITE),
    Route("POST", "/v1/purses/{key}/credits", "credits",
          "payment processor reports a payment into a purse"),
    Route("GET", "/v1/operator", "operator", "figures for the operator's console (NIP-98)"),
    Route("POST", "/v1/operator", "operator", "peers and purses changed by the operator (NIP-98)"),
    Route("POST", "/accounts/{id}/settlements", "settlements",
          "settlement engine reports a payment (RFC 0038)"),
)  # fmt: skip
# Served by the local server itself; CloudWatch has the metrics of a deployment.
LOCAL_ROUTES = (Route("GET", "/metrics", "", "metrics for Prometheus, on one machine only"),)


class Message(NamedTuple):
    """One route of the WebSocket API: a verb, or one of API Gateway's own keys."""

    key: str
    function: str
    work: Work = Work.READ
    # Whether the handler's body goes back to the client as a frame. Only for verbs that always have
    # an answer: API Gateway makes an empty frame of a missing body. Other verbs post their answers.
    answered: bool = False


MESSAGES = (
    Message(CONNECT, "connect"),
    Message(DISCONNECT, "disconnect"),
    # API Gateway sends every message here whose verb it cannot read from the body.
    Message(DEFAULT, "default", Work.LONG),
    Message(Verb.EVENT.value, "event", Work.WRITE, answered=True),
    Message(Verb.REQ.value, "req"),
    Message(Verb.CLOSE.value, "close"),
    Message(Verb.COUNT.value, "count", answered=True),
    Message(Verb.AUTH.value, "auth", answered=True),
    Message(Verb.CHANGES.value, "changes"),
    Message(Verb.NEG_OPEN.value, "negentropy", Work.LONG),
    Message(Verb.NEG_MSG.value, "negentropy", Work.LONG),
    Message(Verb.NEG_CLOSE.value, "negentropy", Work.LONG),
)


# The routes whose handlers return their answers.
ANSWERED = frozenset(message.key for message in MESSAGES if message.answered)


class Stream(NamedTuple):
    """A consumer of a table's stream.

    In the cloud a record that keeps failing is retried until it is `patience_minutes` old. Then it
    goes to the queue `failures`, and the consumer continues with the next record.
    """

    function: str
    table: Table
    patience_minutes: int
    # Whether a new consumer begins with the oldest record that the stream has, not with the next.
    from_beginning: bool = True
    # Batches of one shard that are handled at the same time.
    parallel: int = 1
    # On one machine: never skip a record. The consumer waits until the record succeeds.
    never_skips: bool = False
    # On one machine: records from before the start are of no use, because they are for connections.
    for_connections: bool = False
    # On one machine: how long the consumer waits after the first new record, for more to come.
    pause_seconds: float = 0
    work: Work = Work.READ

    @property
    def failures(self) -> str:
        """The name of the queue for records that were given up."""
        return f"{self.function}-failures"


# The patience follows from what a lost record would cost. A client that misses a live event can
# still ask for it. A number must never be missing, so the sequencer waits for an hour.
STREAMS = (
    Stream("fanout", Table.EVENTS, patience_minutes=5, from_beginning=False, parallel=4,
           for_connections=True),
    Stream("sequencer", Table.EVENTS, patience_minutes=60, never_skips=True,
           pause_seconds=0.01, work=Work.WRITE),
    Stream("push", Table.CHANGES, patience_minutes=15, for_connections=True),
)  # fmt: skip


class Queue(NamedTuple):
    """A queue, and the function that takes its messages. `infra/permissions.py` says which
    functions may send to it. A sender reads its URL from the variable `FARTHING_<NAME>_QUEUE_URL`.

    A message whose call fails is tried `attempts` times in all, and then goes to `failures`.
    """

    name: str
    function: str
    # Calls that take messages at the same time.
    parallel: int = 10
    attempts: int = 3
    seconds: int = 60
    # The longest delay, in seconds, with which a message is sent. SQS accepts no more than 900.
    delay: int = 0

    @property
    def failures(self) -> str:
        """The name of the queue for messages that were given up."""
        return f"{self.name}-failures"


# One machine has no queues: one process does all of this itself.
QUEUES = (
    # Recipients of an event that are too many for one call, in parts.
    Queue("recipients", "recipients", parallel=20),
    # Wakes of paid subscriptions. On one machine, the process wakes them itself.
    Queue("deliveries", "deliveries", parallel=20, attempts=5, delay=900),
    # Wakes of the outbox. On one machine, a thread reads the outbox every second.
    Queue("broadcasts", "broadcasts", parallel=5, seconds=300, delay=900),
)


class Schedule(NamedTuple):
    """A function that runs at intervals."""

    function: str
    minutes: int
    # Whether it also runs right after a deployment, and at the start of the local server.
    at_start: bool = False
    # The setting with the seconds between two runs on one machine, if there is one.
    setting: str = ""
    # Whether it runs in the cloud only: on one machine a thread does the same all the time.
    in_cloud_only: bool = False


SCHEDULES = (
    Schedule("sweeper", minutes=1, setting="sweep_seconds"),
    # The ledger knows every due delivery, so this run also wakes those whose own wake was lost.
    Schedule("outbox", minutes=1, in_cloud_only=True),
    Schedule("feeds", minutes=5, in_cloud_only=True),
    # At the start, so that new prices and addresses are announced at once.
    Schedule("upkeep", minutes=10, at_start=True, setting="upkeep_seconds"),
)

# Called by CloudFormation when a deployment needs the owner's public key.
IDENTITY_FUNCTION = "identity"

# These keep running when the budget is spent: they release held balances, number stored events and
# let clients leave.
RUNS_WHEN_BRAKED = frozenset({"close", "disconnect", IDENTITY_FUNCTION, "sequencer", "sweeper"})


def functions() -> frozenset[str]:
    """The names of all functions that the tables name."""
    tables: tuple[Iterable[Route | Message | Stream | Queue | Schedule], ...]
    tables = (ROUTES, MESSAGES, STREAMS, QUEUES, SCHEDULES)
    named = {entry.function for table in tables for entry in table}
    return frozenset(named | {DEFAULT_FUNCTION, IDENTITY_FUNCTION})


class Match(NamedTuple):
    """The route of a request, its route key and the values of its path's parameters."""

    route: Route
    key: str
    parameters: Mapping[str, str]


def match(method: str, raw_path: str, routes: Iterable[Route] = ROUTES) -> Match | None:
    """The route for a request, as API Gateway selects it. The path is still percent-encoded."""
    for route in routes:
        if method in route.methods:
            parameters = path_parameters(route.path, raw_path)
            if parameters is not None:
                return Match(route, f"{method} {route.path}", parameters)
    return None


def allowed_methods(raw_path: str, routes: Iterable[Route] = ROUTES) -> tuple[str, ...]:
    """The methods of a path in order, with OPTIONS. Empty if there is no such path."""
    methods = {
        method
        for route in routes
        if path_parameters(route.path, raw_path) is not None
        for method in route.methods
    }
    return tuple(sorted(methods | {"OPTIONS"})) if methods else ()


def path_parameters(template: str, raw_path: str) -> dict[str, str] | None:
    """The decoded values of a template's parameters, or None if the path does not match."""
    wanted = template.split("/")
    given = raw_path.split("/", len(wanted) - 1 if template.endswith("+}") else -1)
    if len(wanted) != len(given):
        return None
    parameters = {}
    for segment, text in zip(wanted, given, strict=True):
        if segment.startswith("{"):
            if not text:
                return None
            parameters[segment[1:-1].removesuffix("+")] = unquote(text)
        elif segment != text:
            return None
    return parameters


def documentation() -> list[tuple[str, str, str]]:
    """(method, path, what it is) of every HTTP route, for the table in docs/."""
    return [(route.method, route.path, route.about) for route in (*ROUTES, *LOCAL_ROUTES)]
