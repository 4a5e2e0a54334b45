"""An agent in this process, over SQLite, counted or not, with clients that take every frame."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson

from farthing.context import Agent
from farthing.ports.connections import Delivery
from farthing.relay.caller import Caller
from farthing.relay.connect import connect
from farthing.relay.receive import receive
from farthing.relay.verbs import VERBS
from farthing.settings import Settings
from farthing.store.sqlite import SqliteEngine
from infra.costs.counting import CountingEngine

OWNER = bytes([1] * 32)
HOST = "relay.example"


class Sink:
    """The port to clients: counts frames."""

    frames_fail_alone = True

    def __init__(self) -> None:
        self.frames = 0

    def post(self, _connection_id: str, frames: Iterable[str], **_: bool) -> Delivery:
        self.frames += len(list(frames))
        return Delivery.DELIVERED

    post_in_order = post

    def post_each(self, frames: Iterable[tuple[str, str]]) -> dict[str, Delivery]:
        self.frames += len(list(frames))
        return {}

    def close(self, connection_id: str) -> None:
        raise AssertionError(f"nobody is slow here, {connection_id} least of all")


@contextmanager
def world(*, counting: bool, **settings: Any) -> Iterator[Agent]:
    with TemporaryDirectory() as folder:
        engine = SqliteEngine(Path(folder))
        given = {"secret_key": OWNER.hex(), "requests_per_second": 0, **settings}
        try:
            yield Agent(
                Settings(**given), CountingEngine(engine) if counting else engine, Sink()
            )  # fmt: skip
        finally:
            engine.close()


class Client:
    """One connection, whose messages follow each other by a millisecond."""

    def __init__(self, agent: Agent, connection_id: str = "client") -> None:
        self._agent = agent
        self._id = connection_id
        self._times = count(agent.now_ms)
        connect(agent, connection_id, HOST)
        self.send("CLOSE", "first")  # the challenge comes with the first message only

    def send(self, *parts: object) -> Any:
        caller = Caller(self._agent, self._id, next(self._times), HOST)
        reply = receive(self._agent, caller, orjson.dumps(parts).decode(), VERBS)
        return None if reply is None else orjson.loads(reply)
