"""Event streams of a running relay: by HTTP alone, from where a client left off."""

import asyncio
import itertools
import json
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any
from unittest.mock import Mock

import pytest

from farthing.aether.events import Event
from farthing.aether.messages import Publish
from farthing.context import Agent
from farthing.relay.aether.publish import publish as publish_event
from farthing.relay.aether.streams import Batch, close_subscription, open_subscription
from farthing.relay.sequence import number_events
from farthing.store.changes import Arrival
from farthing.store.memory import MemoryEngine
from farthing.store.spaces import AETHER
from infra.local.server import event_streams
from infra.local.server.event_streams import EventStreams
from infra.local.server.workers import LoopMailbox, Workers
from tests.e2e.aether_client import AetherAuthor
from tests.e2e.conftest import OPEN
from tests.e2e.paying import free_port, http
from tests.e2e.relay_process import RelayProcess
from tests.relay.aether_world import SECOND, as_body, signed
from tests.relay.world import START, Clock, make_agent


class EventStream:
    """A stream as curl shows it."""

    def __init__(
        self, relay: RelayProcess, subscription: str, *headers: str, query: str = ""
    ) -> None:
        url = f"{relay.http}/v1/stream?subscription_id={subscription}{query}"
        options = [part for header in headers for part in ("-H", header)]
        self._curl = subprocess.Popen(
            ["curl", "-sN", "-m", "60", *options, url], stdout=subprocess.PIPE, text=True
        )

    def next(self) -> dict[str, str]:
        """The fields of the next block that has any but a comment."""
        assert self._curl.stdout is not None
        fields: dict[str, str] = {}
        for line in self._curl.stdout:
            name, _, value = line.rstrip("\n").partition(": ")
            if name:
                fields[name] = value
            elif fields and set(fields) != {":"}:
                return fields
            else:
                fields = {}
        raise AssertionError("the stream has ended")

    def event(self) -> tuple[int, Any]:
        while "data" not in (fields := self.next()):
            pass
        assert fields["event"] == "event"
        body = json.loads(fields["data"])
        assert body["type"] == "event"
        return int(fields["id"]), body["event"]

    def wait_for_end(self) -> str:
        """Everything that came until the end."""
        assert self._curl.stdout is not None
        return self._curl.stdout.read()

    def close(self) -> None:
        self._curl.kill()
        self._curl.wait()
        assert self._curl.stdout is not None
        self._curl.stdout.close()


@pytest.fixture
def listen(relay: RelayProcess) -> Iterator[Callable[..., EventStream]]:
    streams: list[EventStream] = []

    def open_one(
        subscription: str, *headers: str, at: RelayProcess = relay, query: str = ""
    ) -> EventStream:
        streams.append(EventStream(at, subscription, *headers, query=query))
        return streams[-1]

    yield open_one
    for stream in streams:
        stream.close()


def post(relay: RelayProcess, path: str, body: object) -> Any:
    return http("POST", f"{relay.http}{path}", json.dumps(body).encode())


def subscribe(relay: RelayProcess, *filters: object, **more: str) -> str:
    answer = post(relay, "/v1/subscriptions", {"filters": filters, **more})
    assert answer.status == 200, answer.data
    assert set(answer.json()) == {"subscription_id"}
    subscription_id: str = answer.json()["subscription_id"]
    return subscription_id


def publish(relay: RelayProcess, author: AetherAuthor, content: str, **fields: Any) -> str:
    event = author.event(content, **fields)
    assert post(relay, "/v1/events", event.as_dict()).json()["message"] == "accepted"
    return event.id


def test_a_stream_begins_with_its_subscription(
    relay: RelayProcess, listen: Callable[..., EventStream]
) -> None:
    author = AetherAuthor()
    publish(relay, author, "before")
    subscription = subscribe(relay, {"authors": [author.pubkey], "kinds": [1]})
    assert len(subscription) >= 32
    publish(relay, author, "0")
    publish(relay, author, "ephemeral", kind=20001)
    publish(relay, author, "of another kind", kind=2)
    publish(relay, AetherAuthor(), "of another author")
    publish(relay, author, "1")
    stream = listen(subscription)
    assert int(stream.next()["retry"]) > 0
    (first, zero), (second, one) = stream.event(), stream.event()
    assert (zero["content"], one["content"]) == ("0", "1")
    assert second > first
    publish(relay, author, "2")
    third, two = stream.event()
    assert two["content"] == "2"
    stream.close()
    # The client comes back with what it has seen.
    publish(relay, author, "3")
    for again in (listen(subscription, f"Last-Event-ID: {second}"),
                  listen(subscription, query=f"&last_event_id={second}")):  # fmt: skip
        assert [again.event()[1]["content"] for _ in range(2)] == ["2", "3"]
    assert third < listen(subscription, f"Last-Event-ID: {third}").event()[0]


def test_subscriptions_are_chosen_taken_and_deleted(
    relay: RelayProcess, listen: Callable[..., EventStream]
) -> None:
    chosen = subscribe(relay, {"kinds": [1]}, subscription_id="my own/one")
    assert chosen == "my own/one"
    taken = post(relay, "/v1/subscriptions", {"filters": [{}], "subscription_id": chosen})
    assert taken.status == 409
    url = f"{relay.http}/v1/subscriptions/my%20own%2Fone"
    gone = http("DELETE", url)
    assert (gone.status, gone.json()) == (200, {"deleted": True, "subscription_id": chosen})
    again = http("DELETE", url)
    assert (again.status, again.json()) == (404, {"error": "subscription_not_found"})
    missing = http("GET", f"{relay.http}/v1/stream?subscription_id=nothing")
    assert (missing.status, missing.json()) == (404, {"error": "subscription_not_found"})
    assert http("GET", f"{relay.http}/v1/stream").status == 404
    for long in ("x" * 65, "x" * 3000):  # the second is longer than a key of the store
        read = http("GET", f"{relay.http}/v1/stream?subscription_id={long}")
        for answer in (read, http("DELETE", f"{relay.http}/v1/subscriptions/{long}")):
            assert (answer.status, answer.json()) == (404, {"error": "subscription_not_found"})


def test_a_stream_ends_with_its_subscription(
    relay: RelayProcess, listen: Callable[..., EventStream]
) -> None:
    author = AetherAuthor()
    subscription = subscribe(relay, {"authors": [author.pubkey]}, subscription_id="ending/one")
    stream = listen("ending%2Fone")
    publish(relay, author, "0")
    assert stream.event()[1]["content"] == "0"
    assert http("DELETE", f"{relay.http}/v1/subscriptions/ending%2Fone").status == 200
    publish(relay, author, "1")
    assert "event: event" not in stream.wait_for_end()
    assert subscribe(relay, {}, subscription_id=subscription) == subscription


def test_a_stream_looks_at_its_subscription_also_if_the_log_never_rests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise a subscription that is read all the time would be forgotten."""
    clock = Clock()
    agent = make_agent(MemoryEngine(clock=clock), clock)
    subscription = open_subscription(agent, {"filters": [{}]}, ip=None)
    monkeypatch.setattr(event_streams, "HEARTBEAT_SECONDS", 0.05)
    numbers = itertools.count()

    def publish_one() -> None:
        event = signed(content=str(next(numbers)))
        publish_event(agent, Publish(as_body(event)), ip=None)
        number_events(agent, [Arrival(event.id, event.pubkey, event.kind)], AETHER)
        streams.notify()

    class BusyResponse:
        """A client for whom each event brings the next one."""

        def __init__(self, headers: object) -> None:
            pass

        async def prepare(self, _request: object) -> None:
            pass

        async def write(self, data: bytes) -> None:
            if data.startswith(b"id:"):
                if next(seen) == 3:
                    close_subscription(agent, subscription)  # as another process would
                publish_one()

    seen = itertools.count()
    monkeypatch.setattr(event_streams.web, "StreamResponse", BusyResponse)

    async def follow() -> None:
        nonlocal streams
        mailbox = LoopMailbox(asyncio.get_running_loop())
        workers = Workers(1, mailbox)
        streams = EventStreams(agent, workers, mailbox)
        publish_one()
        async with asyncio.timeout(60):
            await streams.serve(
                Mock(), {"rawQueryString": f"subscription_id={subscription}", "headers": {}}
            )
        streams.stop()
        workers.stop()

    streams: EventStreams
    asyncio.run(follow())
    assert next(seen) > 3


class Reader:
    """A client of an event stream without a server. It leaves with an exception."""

    def __init__(self, _headers: object = None) -> None:
        self.written: list[bytes] = []

    async def prepare(self, _request: object) -> None:
        pass

    async def write(self, data: bytes) -> None:
        self.written.append(data)
        if data.startswith(b":"):
            raise ConnectionResetError

    def events(self) -> list[Any]:
        lines = b"".join(self.written).decode().split("\n")
        return [json.loads(line[6:])["event"] for line in lines if line.startswith("data: ")]


def read_stream(
    agent: Agent,
    subscription: str,
    reader: Reader,
    monkeypatch: pytest.MonkeyPatch,
    events: Sequence[Event],
) -> Mock:
    """Serve a stream from its start, after these events have come to the tail of the log. Returns
    the request."""
    monkeypatch.setattr(event_streams.web, "StreamResponse", lambda **_: reader)
    monkeypatch.setattr(event_streams, "HEARTBEAT_SECONDS", 0.05)
    request = Mock()

    async def follow() -> None:
        mailbox = LoopMailbox(asyncio.get_running_loop())
        workers = Workers(1, mailbox)
        streams = EventStreams(agent, workers, mailbox)
        for event in events:
            publish_event(agent, Publish(as_body(event)), ip=None)
            number_events(agent, [Arrival(event.id, event.pubkey, event.kind)], AETHER)
            moved = streams._moved
            streams.notify()
            await moved.wait()
        agent.clock.now += 60  # type: ignore[attr-defined]
        async with asyncio.timeout(60):
            with suppress(ConnectionResetError):
                await streams.serve(
                    request, {"rawQueryString": f"subscription_id={subscription}", "headers": {}}
                )
        streams.stop()
        workers.stop()

    asyncio.run(follow())
    return request


@pytest.fixture
def agent() -> Agent:
    clock = Clock()
    return make_agent(MemoryEngine(clock=clock), clock)


def test_what_was_replaced_or_has_expired_is_left_out_of_the_tail(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscription = open_subscription(agent, {"filters": [{}]}, ip=None)
    first = signed(kind=30000, content="first", tags=[("d", "x")])
    another = signed(kind=30000, content="another", tags=[("d", "y")])
    expiring = signed(content="expiring", tags=[("expiration", str(START + 30))])
    second = signed(
        kind=30000, content="second", tags=[("d", "x")], created_at=START * SECOND + 1
    )  # fmt: skip
    reader = Reader()
    read_stream(agent, subscription, reader, monkeypatch, [first, another, expiring, second])
    assert reader.events() == [as_body(another), as_body(second)]


def test_one_write_at_a_time_waits_for_a_client(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscription = open_subscription(agent, {"filters": [{}]}, ip=None)
    events = [signed(content=str(number).ljust(30_000)) for number in range(12)]
    reader = Reader()
    read_stream(agent, subscription, reader, monkeypatch, events)
    assert reader.events() == list(map(as_body, events))
    assert max(map(len, reader.written)) < 2 * 64 * 1024


def test_a_client_that_does_not_read_is_disconnected(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Deaf(Reader):
        async def write(self, data: bytes) -> None:
            self.written.append(data)
            if data.startswith(b"id:"):
                await asyncio.Event().wait()

    monkeypatch.setattr(event_streams, "_PATIENCE_SECONDS", 0.05)
    subscription = open_subscription(agent, {"filters": [{}]}, ip=None)
    request = read_stream(agent, subscription, Deaf(), monkeypatch, [signed()])
    request.transport.abort.assert_called_once_with()


def test_few_streams_read_the_log_at_a_time(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reading takes a thread, and other requests need threads too."""
    subscription = open_subscription(agent, {"filters": [{}]}, ip=None)
    query = {"rawQueryString": f"subscription_id={subscription}&last_event_id=0", "headers": {}}
    go_on = threading.Event()
    monkeypatch.setattr(event_streams, "_MOST_EVENTS", 0)  # all streams are behind the tail
    read = event_streams.read_log

    def read_slowly(*given: Any) -> Batch:
        if len(given) == 4:  # for one stream
            go_on.wait()
        return read(*given)

    async def follow() -> int:
        mailbox = LoopMailbox(asyncio.get_running_loop())
        workers = CountingWorkers(8, mailbox)
        streams = EventStreams(agent, workers, mailbox)
        event = signed()
        publish_event(agent, Publish(as_body(event)), ip=None)
        number_events(agent, [Arrival(event.id, event.pubkey, event.kind)], AETHER)
        moved = streams._moved
        streams.notify()
        await moved.wait()
        readers = [Reader() for _ in range(6)]
        begun = asyncio.Semaphore(0)
        waiting = iter(readers)

        def answer(headers: object) -> Reader:
            begun.release()
            return next(waiting)

        monkeypatch.setattr(event_streams, "read_log", read_slowly)
        monkeypatch.setattr(event_streams.web, "StreamResponse", answer)
        served = [asyncio.create_task(streams.serve(Mock(), query)) for _ in readers]
        for _ in readers:
            await begun.acquire()
        at_a_time = workers.running
        go_on.set()
        streams.stop()
        await asyncio.gather(*served)
        workers.stop()
        return at_a_time

    assert asyncio.run(follow()) == 2


class CountingWorkers(Workers):
    running = 0

    async def run(self, call: Callable[[], Any]) -> Any:
        self.running += 1
        try:
            return await super().run(call)
        finally:
            self.running -= 1


@pytest.mark.parametrize(
    ("chosen", "path", "query"),
    [("a/b", "a/b", "a/b"), ("a%2Fb", "a%252Fb", "a%252Fb"), ("a+b&c", "a+b&c", "a%2Bb%26c")],
)
def test_any_id_is_found_in_path_and_query(
    relay: RelayProcess, listen: Callable[..., EventStream], chosen: str, path: str, query: str
) -> None:
    assert subscribe(relay, {"kinds": [1]}, subscription_id=chosen) == chosen
    assert listen(query).next() == {"retry": "2000"}
    gone = http("DELETE", f"{relay.http}/v1/subscriptions/{path}")
    assert (gone.status, gone.json()["subscription_id"]) == (200, chosen)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"filters":[]}', b'{"filters":[{"x":1}]}',
                                  b'{"filters":[{}],"subscription_id":""}'])  # fmt: skip
def test_a_wrong_subscription_gets_400(relay: RelayProcess, body: bytes) -> None:
    answer = http("POST", f"{relay.http}/v1/subscriptions", body)
    assert answer.status == 400
    assert answer.json()["error"] == "invalid_message"
    assert answer.json()["message"]


def test_a_wrong_last_event_id(relay: RelayProcess) -> None:
    subscription = subscribe(relay, {})
    url = f"{relay.http}/v1/stream?subscription_id={subscription}"
    assert http("GET", url, Last_Event_ID="x").status == 400


def test_a_stream_loses_the_server_and_misses_nothing(
    start_relay: Callable[..., RelayProcess], listen: Callable[..., EventStream]
) -> None:
    settings = {**OPEN, "port": free_port()}
    author, relay = AetherAuthor(), start_relay(**settings)
    subscription = subscribe(relay, {"authors": [author.pubkey]})
    stream = listen(subscription, at=relay)
    publish(relay, author, "0")
    last, event = stream.event()
    assert event["content"] == "0"
    publish(relay, author, "1")
    assert stream.event()[1]["content"] == "1"
    assert relay.stop() == 0
    stream.wait_for_end()
    relay.start()
    publish(relay, author, "2")
    stream = listen(subscription, f"Last-Event-ID: {last}", at=relay)
    assert [stream.event()[1]["content"] for _ in range(2)] == ["1", "2"]


@pytest.mark.soak
def test_a_thousand_streams_take_little_memory(start_relay: Callable[..., RelayProcess]) -> None:
    relay = start_relay(**OPEN)
    author = AetherAuthor()
    subscription = subscribe(relay, {"authors": [author.pubkey]})
    request = f"GET /v1/stream?subscription_id={subscription} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    sockets = []
    for _ in range(1000):
        opened = socket.create_connection(("127.0.0.1", relay.port), timeout=30)
        opened.sendall(request)
        sockets.append(opened)
    try:
        wait_for(sockets, b"retry:")
        publish(relay, author, "warm")
        wait_for(sockets, b"warm")
        before = relay.memory_kb()
        for number in range(50):
            publish(relay, author, f"event {number} {'x' * 1000}")
            wait_for(sockets, f"event {number} ".encode())
        assert relay.memory_kb() - before < 20_000
    finally:
        for opened in sockets:
            opened.close()


def wait_for(sockets: list[socket.socket], text: bytes) -> None:
    for each in sockets:
        seen = b""
        while text not in seen:
            some = each.recv(65536)
            assert some, "the stream has ended"
            seen = seen[-len(text) :] + some
