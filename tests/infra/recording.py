"""Handlers run for real over a store that writes down what each of them does to which table."""

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from farthing.aws.recipients import write_part
from farthing.context import Agent
from farthing.handlers import runtime
from farthing.ilp.packet import Prepare, encode
from farthing.nostr.events import Event
from farthing.ports.broadcast_wakes import write_broadcast_wake
from farthing.ports.meter import Metric
from farthing.ports.recipients import Part
from farthing.ports.wakes import write_wake
from farthing.relay.aether.owner import keys_of
from farthing.store.sqlite import SqliteEngine
from farthing.store.streams import records_of
from farthing.store.table import (
    CLOUD_SHARDS,
    MAX_TRANSACTION,
    Add,
    BatchWrite,
    Check,
    Delete,
    Item,
    Key,
    Page,
    Put,
    Query,
    Table,
    TransactWrite,
    Write,
)
from farthing.surface import DEFAULT, ROUTES, match
from infra.permissions import DERIVED_KEYS, KEY, Action
from tests.ilp.paying import TOKEN
from tests.relay.world import (
    Clock,
    CountingMeter,
    RecordingConnections,
    counts_of,
    make_agent,
)

_ACTIONS = {Put: Action.PUT, Delete: Action.DELETE, Add: Action.UPDATE, Check: Action.CHECK}
CONNECTION = "someone"
HOST = "relay.example"
ARN_PREFIX = "arn:aws:dynamodb:eu-central-1:123456789012:table/farthing-"


class RecordingEngine:
    """See `table.Engine`; what DynamoDB would have to permit goes to `done`."""

    def __init__(self, inner: SqliteEngine) -> None:
        self.inner = inner
        self.max_transaction = MAX_TRANSACTION  # as in the cloud
        self.shards = CLOUD_SHARDS
        self.done: list[tuple[Table, Action]] = []

    def get(self, table: Table, pk: str, sk: str) -> Item | None:
        self.done.append((table, Action.GET))
        return self.inner.get(table, pk, sk)

    def get_many(self, table: Table, keys: Iterable[Key]) -> dict[Key, Item]:
        wanted = list(keys)
        if wanted:
            self.done.append((table, Action.GET_MANY))
        return self.inner.get_many(table, wanted)

    def query(self, query: Query) -> Page:
        self.done.append((query.table, Action.QUERY))
        return self.inner.query(query)

    def query_many(self, queries: Sequence[Query]) -> list[Page]:
        self.done.extend((query.table, Action.QUERY) for query in queries)
        return self.inner.query_many(queries)

    def write(self, write: Write) -> Item | None:
        self.done.append((write.table, _ACTIONS[type(write)]))
        return self.inner.write(write)

    def write_batch(self, writes: Sequence[BatchWrite], *, deferred: bool = False) -> None:
        self.done.extend((write.table, Action.WRITE_MANY) for write in writes)
        self.inner.write_batch(writes, deferred=deferred)

    def transact(self, writes: Sequence[TransactWrite]) -> None:
        self.done.extend((write.table, _ACTIONS[type(write)]) for write in writes)
        self.inner.transact(writes)

    def together(self, *calls: Any) -> list[Any]:
        return [call() for call in calls]


class Stage:
    """One agent, called as Lambda calls it. `used` has what each function did, `posted` who posted
    to a connection."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.clock = Clock()
        self.engine = RecordingEngine(SqliteEngine(folder, clock=self.clock))
        self.agent = make_agent(
            self.engine, self.clock, **{"relay_url": f"wss://{HOST}", **settings}
        )
        self.used: dict[str, set[tuple[Table, Action]]] = {}
        self.posted: set[str] = set()
        # Who left recipients to later calls: nobody, unless a call serves fewer than there are.
        self.handed_over: set[str] = set()
        self.parts: list[Part] = []
        self.most_at_once = 1000
        # Who woke paid subscriptions, and which.
        self.waking: set[str] = set()
        self.wakes: list[tuple[str, str]] = []
        # Who woke the outbox, and for which events.
        self.waking_outbox: set[str] = set()
        self.broadcast_wakes: list[str | None] = []
        # What happens elsewhere while a frame is on its way.
        self.meanwhile: Callable[[], object] = lambda: None
        self._messages = 0

    def call(self, function: str, event: dict[str, Any]) -> dict[str, Any]:
        """Only who has been given the key has it here."""
        settings = self.agent.settings
        known = settings
        if function not in KEY:
            derived = keys_of(settings).write(public=function not in DERIVED_KEYS)
            known = replace(
                settings, secret_key="", public_key=settings.pubkey, derived_keys=derived
            )
        # Nothing is remembered from another function's calls, which run in other containers.
        agent = replace(
            self.agent,
            settings=known,
            meter=CountingMeter(),
            recipients=_Recipients(self, function),
            wakes=_Wakes(self, function),
            broadcast_wakes=_BroadcastWakes(self, function),
            _parts={},
        )
        self.engine.done = []
        self.connections.before_post = lambda: self._on_post(function)
        with _installed(agent):
            response: dict[str, Any] = import_module(f"functions.{function}.handler").handler(
                event, None
            )
        assert not counts_of(agent).get(Metric.INTERNAL_ERRORS), (function, event)
        self.used.setdefault(function, set()).update(self.engine.done)
        return response

    def _on_post(self, function: str) -> None:
        self.posted.add(function)
        self.meanwhile()

    @property
    def connections(self) -> RecordingConnections:
        assert isinstance(self.agent.connections, RecordingConnections)
        return self.agent.connections

    @property
    def next_time_ms(self) -> int:
        """That of the next message."""
        return int(self.clock() * 1000) + self._messages

    def socket(self, function: str, *parts: object, connection: str = CONNECTION) -> Any:
        """A message, or a connection that comes or goes."""
        context = {
            "connectionId": connection,
            "requestTimeEpoch": self.next_time_ms,
            "domainName": HOST,
        }
        self._messages += 1
        body = json.dumps(parts) if parts else None
        return self.call(function, {"requestContext": context, "body": body})

    def frame(self, function: str, body: str, connection: str = CONNECTION) -> list[str | bytes]:
        """A text frame as it is, and what came back for it."""
        context = {
            "connectionId": connection,
            "requestTimeEpoch": self.next_time_ms,
            "domainName": HOST,
        }
        self._messages += 1
        answer = self.call(function, {"requestContext": context, "body": body})
        posted = self.connections.take_frames(connection)
        return [*posted, answer["body"]] if "body" in answer else posted

    def web(
        self, function: str, body: object = "", *, method: str = "POST", path: str = "",
        query: str = "", **headers: str,
    ) -> dict[str, Any]:  # fmt: skip
        path = path or next(each.path for each in ROUTES if each.function == function)
        found = match(method, path)
        assert found is None or found.route.function == function
        return self.call(
            function,
            {
                "routeKey": found.key if found else DEFAULT,
                "pathParameters": found.parameters if found else {},
                "requestContext": {"http": {"method": method}},
                "rawPath": path,
                "rawQueryString": query,
                "headers": {name.replace("_", "-"): value for name, value in headers.items()},
                "body": body if isinstance(body, str) else json.dumps(body),
                "isBase64Encoded": function == "ilp",
            },
        )

    def packet(self, prepare: Prepare, token: str = TOKEN, **headers: str) -> dict[str, Any]:
        octets = base64.b64encode(encode(prepare)).decode()
        return self.web(
            "ilp", octets, content_type="application/octet-stream",
            authorization=f"Bearer {token}", **headers,
        )  # fmt: skip

    def stream(self, function: str, table: Table) -> None:
        """What the table's stream has brought so far, all of it."""
        changes = [each for each in self.engine.inner.stream_after(0, 1000) if each.table is table]
        self.call(function, records_of(changes, ARN_PREFIX))

    def deliver_parts(self) -> None:
        """What was left to later calls, by one call for each part."""
        parts, self.parts = self.parts, []
        for part in parts:
            self.call("recipients", {"Records": [{"body": write_part(part)}]})

    def deliver_woken(self) -> None:
        """One call for each paid subscription that was woken."""
        wakes, self.wakes = self.wakes, []
        for wake in dict.fromkeys(wakes):
            self.call("deliveries", {"Records": [{"body": write_wake(*wake)}]})

    def broadcast_woken(self) -> None:
        """One call for each event that the outbox was woken for."""
        wakes, self.broadcast_wakes = self.broadcast_wakes, []
        for wake in dict.fromkeys(wakes):
            self.call("broadcasts", {"Records": [{"body": write_broadcast_wake(wake)}]})

    def numbered(self, *events: Event) -> None:
        """Stored, and numbered behind the others."""
        self.store(*events)
        self.stream("sequencer", Table.EVENTS)

    def store(self, *events: Event) -> None:
        for event in events:
            self.agent.events.save(event)


class _Recipients:
    """Writes down who left recipients to later calls, and to which."""

    def __init__(self, stage: Stage, function: str) -> None:
        self._stage, self._function = stage, function
        self.most_at_once = stage.most_at_once

    def put(self, parts: Sequence[Part]) -> None:
        self._stage.handed_over.add(self._function)
        self._stage.parts += parts


class _Wakes:
    """Writes down who woke a paid subscription."""

    def __init__(self, stage: Stage, function: str) -> None:
        self._stage, self._function = stage, function

    def wake(self, owner: str, subscription_id: str, delay: float = 0.0) -> None:
        self._stage.waking.add(self._function)
        self._stage.wakes.append((owner, subscription_id))


class _BroadcastWakes:
    """Writes down who woke the outbox."""

    def __init__(self, stage: Stage, function: str) -> None:
        self._stage, self._function = stage, function

    def wake(self, event_id: str, delay: float = 0.0) -> None:
        self._stage.waking_outbox.add(self._function)
        self._stage.broadcast_wakes.append(event_id)

    def wake_for_new(self) -> None:
        self._stage.waking_outbox.add(self._function)
        self._stage.broadcast_wakes.append(None)


@contextmanager
def _installed(agent: Agent) -> Iterator[None]:
    runtime.install(agent)
    try:
        yield
    finally:
        runtime.install(None)
