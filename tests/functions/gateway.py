"""API Gateway and SQS as they behave, for tests of what stands behind and before them.

`Management` is the @connections API as botocore's client shows it. `SocketApi` is the WebSocket API
in front of the handlers: it has frames of 32 KB at most, connections that end when idle, and route
responses that are empty where the handler returns nothing. `Queue` is SQS.
"""

import json
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any

from botocore.exceptions import ClientError

from farthing.surface import MESSAGES

LARGEST_FRAME = 32 * 1024
IDLE_SECONDS = 600
LIFE_SECONDS = 2 * 3600
NORMAL, GOING_AWAY, TOO_BIG = 1000, 1001, 1009

_ROUTES = {message.key: message for message in MESSAGES}


def failure(code: str, status: int) -> ClientError:
    return ClientError(
        {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}},
        "PostToConnection",
    )


# As API Gateway and the services behind it have been seen to answer. botocore knows only some of
# these by name; what counts is the status.
GONE = failure("GoneException", 410)
LARGE = failure("PayloadTooLargeException", 413)
THROTTLED = [
    failure("LimitExceededException", 429),
    failure("ThrottlingException", 429),
    failure("TooManyRequestsException", 429),
    failure("Throttling", 429),
    failure("429", 429),
]
BROKEN = [failure("InternalServerError", 500), failure("500", 500), failure("", 503)]
REFUSED = [failure("BadRequestException", 400), failure("ForbiddenException", 403)]


class Management:
    """botocore's client of @connections, which answers as it is told to."""

    def __init__(self) -> None:
        self.posted: list[tuple[str, str]] = []
        self.attempts: list[tuple[str, str]] = []
        self.deleted: list[str] = []
        self.answer: Callable[[str, str], Exception | None] = lambda *_: None
        self._lock = threading.Lock()

    def post_to_connection(self, *, ConnectionId: str, Data: bytes) -> None:
        frame = Data.decode()
        with self._lock:
            self.attempts.append((ConnectionId, frame))
        error = self.answer(ConnectionId, frame)
        if error is not None:
            raise error
        with self._lock:
            self.posted.append((ConnectionId, frame))

    def delete_connection(self, *, ConnectionId: str) -> None:
        self.deleted.append(ConnectionId)
        error = self.answer(ConnectionId, "")
        if error is not None:
            raise error


class Socket:
    """A client's end: the frames that it was sent, and the code with which it was closed."""

    def __init__(self, api: "SocketApi", id: str) -> None:
        self._api = api
        self.id = id
        self.frames: list[str] = []
        self.closed: int | None = None

    def send(self, *parts: object) -> None:
        self.send_text(json.dumps(parts))

    def send_text(self, text: str) -> None:
        self._api.receive(self, text)

    def messages(self) -> list[Any]:
        """The frames since the last look. An empty one is no message of any protocol."""
        frames, self.frames = self.frames, []
        return [json.loads(frame) for frame in frames]


class SocketApi:
    """The WebSocket API and, as `post_to_connection` and so on, its @connections."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._sockets: dict[str, Socket] = {}
        self._opened: dict[str, float] = {}
        self._active: dict[str, float] = {}
        self._messages = 0
        # Why @connections refuses a frame, if it does.
        self.refuses: Callable[[str], Exception | None] = lambda _: None

    def connect(self, **headers: str) -> Socket:
        socket = Socket(self, f"connection{len(self._opened)}=")
        self._sockets[socket.id] = socket
        self._opened[socket.id] = self._active[socket.id] = self._clock()
        response = self._call("$connect", socket, headers=headers)
        assert response["statusCode"] == 200
        return socket

    def receive(self, socket: Socket, text: str) -> None:
        """A message from a client, which sends it as one frame."""
        self.tick()
        assert socket.closed is None, "the connection has ended"
        if len(text.encode()) > LARGEST_FRAME:
            self._end(socket, TOO_BIG)
            return
        self._active[socket.id] = self._clock()
        key = self._route_key(text)
        response = self._call(key, socket, body=text)
        if _ROUTES[key].answered:
            # A route response is a frame in any case.
            socket.frames.append(response.get("body", ""))

    def _route_key(self, text: str) -> str:
        """`$request.body.[0]`."""
        try:
            verb = json.loads(text)[0]
        except (ValueError, LookupError, TypeError):
            return "$default"
        return verb if verb in _ROUTES else "$default"

    def _call(self, key: str, socket: Socket, **event: Any) -> dict[str, Any]:
        self._messages += 1
        context = {
            "connectionId": socket.id,
            "routeKey": key,
            "requestTimeEpoch": int(self._clock() * 1000) + self._messages,
            "domainName": "relay.example",
            "identity": {"sourceIp": "198.51.100.7"},
        }
        handler = import_module(f"functions.{_ROUTES[key].function}.handler").handler
        response = handler({"requestContext": context, **event}, None)
        return dict(json.loads(json.dumps(response)))

    def tick(self) -> None:
        """Time has passed: connections that are idle or old end."""
        now = self._clock()
        for socket in list(self._sockets.values()):
            idle = now - self._active[socket.id] >= IDLE_SECONDS
            if idle or now - self._opened[socket.id] >= LIFE_SECONDS:
                self._end(socket, GOING_AWAY)

    def _end(self, socket: Socket, code: int) -> None:
        socket.closed = code
        del self._sockets[socket.id]
        self._call("$disconnect", socket)

    # @connections

    def post_to_connection(self, *, ConnectionId: str, Data: bytes) -> None:
        socket = self._sockets.get(ConnectionId)
        if socket is None:
            raise GONE
        if (refusal := self.refuses(Data.decode())) is not None:
            raise refusal
        self._active[ConnectionId] = self._clock()
        socket.frames.append(Data.decode())

    def delete_connection(self, *, ConnectionId: str) -> None:
        socket = self._sockets.get(ConnectionId)
        if socket is None:
            raise GONE
        self._end(socket, NORMAL)


class Queue:
    """SQS: at least once, in no order, of bounded messages and batches."""

    LARGEST = 256 * 1024

    def __init__(self) -> None:
        self.waiting: list[tuple[int, str]] = []  # delay, body
        self.requests = 0
        # Ids of a batch that are not taken.
        self.refuse: Callable[[list[dict[str, Any]]], list[str]] = lambda _: []

    def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> dict[str, Any]:
        assert QueueUrl
        assert 1 <= len(Entries) <= 10
        assert sum(len(entry["MessageBody"].encode()) for entry in Entries) <= self.LARGEST
        assert all(0 <= entry["DelaySeconds"] <= 900 for entry in Entries)
        self.requests += 1
        failed = self.refuse(Entries)
        self.waiting += [
            (entry["DelaySeconds"], entry["MessageBody"])
            for entry in Entries
            if entry["Id"] not in failed
        ]
        return {"Failed": [{"Id": id} for id in failed]} if failed else {}

    def take(self) -> dict[str, Any] | None:
        """The next message as Lambda hands it to a function."""
        if not self.waiting:
            return None
        _, body = self.waiting.pop(0)
        return {"Records": [{"body": body, "eventSource": "aws:sqs"}]}
