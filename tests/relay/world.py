"""What the relay's tests stand on: a clock, clients that remember frames, events made quickly."""

import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import orjson
import pytest

from farthing.context import Agent
from farthing.nostr.events import Event, sign_event
from farthing.ports.connections import Delivery, Frame, NumberedFrame
from farthing.ports.meter import Metric
from farthing.relay.caller import Caller
from farthing.relay.connect import connect
from farthing.relay.receive import receive
from farthing.relay.verbs import VERBS
from farthing.settings import Settings
from farthing.store.attributes import unmarshal, unmarshal_key
from farthing.store.dynamodb import DynamoDBEngine
from farthing.store.table import Delete, Engine, Table
from tests.store.tables import create_tables

START = 1_700_000_000
OWNER = bytes([1] * 32)
ALICE = bytes([2] * 32)
BOB = bytes([3] * 32)
HOST = "relay.example"


class Clock:
    def __init__(self) -> None:
        self.now: float = START

    def __call__(self) -> float:
        return self.now


class RecordingConnections:
    """Clients that take every frame, unless a test says what becomes of theirs."""

    carries_replies = True
    frames_fail_alone = True

    def __init__(self) -> None:
        self.posted: list[tuple[str, Any]] = []
        self.frames: list[tuple[str, str | bytes]] = []  # the same as they came
        self.closed: list[str] = []
        self.fate: dict[str, Delivery] = {}
        self.error: Exception | None = None
        self.before_post: Callable[[], None] = lambda: None

    def post(self, connection_id: str, frames: Iterable[Frame]) -> Delivery:
        self.before_post()
        if self.error is not None:
            raise self.error
        delivery = self.fate.get(connection_id, Delivery.DELIVERED)
        if delivery is Delivery.DELIVERED:
            for frame in frames:
                written = frame.write() if isinstance(frame, NumberedFrame) else frame
                if written is None:
                    return Delivery.GONE
                self.frames.append((connection_id, written))
                self.posted.append((connection_id, _loaded(written)))
        return delivery

    def post_in_order(
        self, connection_id: str, frames: Iterable[Frame], *, live: bool = False
    ) -> Delivery:
        return self.post(connection_id, frames)

    def post_each(self, frames: Iterable[tuple[str, Frame]]) -> dict[str, Delivery]:
        deliveries = {
            connection_id: self.post(connection_id, [frame]) for connection_id, frame in frames
        }
        return {
            connection_id: delivery
            for connection_id, delivery in deliveries.items()
            if delivery is not Delivery.DELIVERED
        }

    def close(self, connection_id: str) -> None:
        self.closed.append(connection_id)

    def take(self, connection_id: str) -> list[Any]:
        """What was sent to a client since the last look."""
        taken = [frame for client, frame in self.posted if client == connection_id]
        self.posted = [each for each in self.posted if each[0] != connection_id]
        self.frames = [each for each in self.frames if each[0] != connection_id]
        return taken

    def take_frames(self, connection_id: str) -> list[str | bytes]:
        """The same, as it came."""
        taken = [frame for client, frame in self.frames if client == connection_id]
        self.take(connection_id)
        return taken


def _loaded(frame: str | bytes) -> Any:
    """What a frame says, where it is JSON."""
    try:
        return orjson.loads(frame)
    except orjson.JSONDecodeError:
        return frame


class CountingMeter:
    def __init__(self) -> None:
        self.counts: dict[Metric, int] = {}

    def totals(self) -> dict[str, int]:
        return {}

    def count(self, metric: Metric, number: int = 1, code: str = "") -> None:
        self.counts[metric] = self.counts.get(metric, 0) + number


def make_agent(engine: Engine, clock: Clock, **settings: Any) -> Agent:
    free = {"price_per_byte": 0, "secret_key": OWNER.hex()}
    return Agent(
        settings=Settings(**{**free, **settings}),
        engine=engine,
        connections=RecordingConnections(),
        meter=CountingMeter(),
        clock=clock,
    )


class Client:
    """One connection: `send` gives every frame that comes back, the last one last."""

    def __init__(self, agent: Agent, connection_id: str = "client", *, greeted: bool = True):
        self.agent = agent
        self.id = connection_id
        self.times = itertools.count(1)
        connect(agent, connection_id, HOST)
        if greeted:
            ((_, self.challenge),) = self.send("CLOSE", "nothing")

    def send(self, *parts: Any, **options: Any) -> list[Any]:
        return self.send_frame(orjson.dumps(parts).decode(), **options)

    def send_frame(self, frame: str, *, time_ms: int | None = None) -> list[Any]:
        if time_ms is None:
            time_ms = int(self.agent.clock() * 1000) + next(self.times)
        caller = Caller(self.agent, self.id, time_ms, HOST)
        reply = receive(self.agent, caller, frame, VERBS)
        answers = connections_of(self.agent).take(self.id)
        return answers if reply is None else [*answers, orjson.loads(reply)]

    def publish(self, event: Event) -> list[Any]:
        """The OK."""
        (answer,) = self.send("EVENT", event.as_dict())
        return answer

    def authenticate(self, secret: bytes, **changes: Any) -> list[Any]:
        """The OK."""
        (answer,) = self.send("AUTH", self.auth_event(secret, **changes).as_dict())
        return answer

    def auth_event(self, secret: bytes, **changes: Any) -> Event:
        tags = {"relay": f"wss://{HOST}/", "challenge": self.challenge, **changes.pop("tags", {})}
        given = {"kind": 22242, "content": "", "created_at": self.agent.now, **changes}
        pairs = [[name, value] for name, value in tags.items() if value is not None]
        return sign_event(secret, tags=pairs, **given)

    def ids(self, *filters: Any) -> list[str]:
        """The ids of the stored events that a REQ brings, in order; it must end with EOSE."""
        *events, end = self.send("REQ", "ids", *filters)
        assert end == ["EOSE", "ids"]
        assert all(frame[:2] == ["EVENT", "ids"] for frame in events)
        return [frame[2]["id"] for frame in events]


def connections_of(agent: Agent) -> RecordingConnections:
    assert isinstance(agent.connections, RecordingConnections)
    return agent.connections


def counts_of(agent: Agent) -> dict[Metric, int]:
    assert isinstance(agent.meter, CountingMeter)
    return agent.meter.counts


def signed(secret: bytes = ALICE, **changes: Any) -> Event:
    given = {"kind": 1, "content": "hello", "created_at": START, "tags": []}
    return sign_event(secret, **{**given, **changes})


def hex_id(number: int) -> str:
    """Ids that sort as their numbers do."""
    return f"{number:064x}"


_made = itertools.count(1)


def made(
    *,
    id: str | None = None,
    pubkey: str = "a" * 64,
    created_at: int = START,
    kind: int = 1,
    tags: Sequence[Sequence[str]] = (),
) -> Event:
    """An event without a signature, for what stands behind verification."""
    identity = id or f"{random.Random(next(_made)).getrandbits(256):064x}"
    frozen = tuple(tuple(tag) for tag in tags)
    return Event(identity, pubkey, created_at, kind, frozen, "", "0" * 128)


class MotoTables:
    """One set of tables on moto, emptied for each user: to make them takes long. Its names are its
    own, because mocks that overlap share what they hold."""

    _made = itertools.count()

    def __init__(self) -> None:
        self._clock = Clock()
        self.prefix = f"relay{next(self._made)}-"
        self._engine = DynamoDBEngine(
            self.prefix, region="eu-central-1", clock=lambda: self._clock()
        )
        create_tables(self._engine.connection, self.prefix)

    def close(self) -> None:
        self._engine.close()

    def empty(self, clock: Clock) -> DynamoDBEngine:
        """The engine on empty tables, by another clock."""
        self._clock = clock
        for table in Table:
            for pk, sk, _ in self.items(table):
                self._engine.write(Delete(table, pk, sk))
        return self._engine

    def items(self, table: Table) -> list[tuple[str, str, dict[str, Any]]]:
        """All that is in a table, expired or not."""
        found = self._engine.connection.client.scan(TableName=self.prefix + table)["Items"]
        return [(*unmarshal_key(each), unmarshal(each)) for each in found]


@contextmanager
def aws_credentials() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
        yield
