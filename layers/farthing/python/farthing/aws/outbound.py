"""Requests to peers, by urllib3, which comes with botocore and reuses connections."""

import io
import json
import logging
import socket
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

from farthing.ports.hosts import HostNotAllowed, HostRules
from farthing.ports.outbound import (
    CallbackAttempts,
    OutboundFailed,
    OutboundTimeout,
    Response,
)

log = logging.getLogger("farthing")

# A reply is read only up to the size of the largest packet.
LARGEST_REPLY = 64 * 1024
_CONNECT_SECONDS = 10.0
# The key in an event that a function has sent to itself. No API event has this key.
CALLBACK = "callback"


def make_client() -> Any:
    from botocore.config import Config
    from botocore.session import get_session

    config = Config(connect_timeout=2, read_timeout=5, retries={"total_max_attempts": 2})
    return get_session().create_client("lambda", config=config)


class HttpOutbound:
    def __init__(
        self, rules: HostRules | None = None, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._rules = rules or HostRules()
        self._pool = urllib3.PoolManager(num_pools=32, maxsize=16, retries=False)
        self._pool.pool_classes_by_scheme = _checked_pools(self._rules)
        self._sleep = sleep

    def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Response:
        if timeout <= 0:
            raise OutboundTimeout("no time is left for an answer")
        try:
            self._rules.check_scheme(urlsplit(url).scheme)
            reply = self._pool.request(
                "POST",
                url,
                body=body,
                headers=dict(headers),
                timeout=urllib3.Timeout(total=timeout),
                redirect=False,  # a redirect would lead away from the registered host
                preload_content=False,
            )
            body = b""
            try:
                body = reply.read(LARGEST_REPLY)
                return Response(reply.status, body)
            finally:
                if len(body) == LARGEST_REPLY:
                    reply.close()  # unread bytes would be taken for the next request's answer
                reply.release_conn()
        except urllib3.exceptions.ReadTimeoutError:
            raise OutboundTimeout("no answer in time") from None
        except HostNotAllowed as error:
            raise OutboundFailed(str(error)) from None
        except urllib3.exceptions.HTTPError as error:
            raise OutboundFailed(type(error).__name__) from None

    def side_by_side(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        """Run calls that each send a request, at the same time."""
        # Imported here: few functions send several packets at once.
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(len(calls)) as threads:
            return list(threads.map(lambda call: call(), calls))

    def call_back(self, url: str, headers: Mapping[str, str], body: bytes, seconds: float) -> None:
        """Send the callback now, and repeat it until the peer accepts it or the time is up."""
        attempts = CallbackAttempts(seconds)
        for wait, left in attempts:
            self._sleep(wait)
            try:
                attempts.answered(self.post(url, headers, body, left).status)
            except OutboundFailed as error:
                attempts.failed(error)
        attempts.report()


class _OneDeadline:
    """A connection whose timeout covers a whole answer. urllib3's own timeout is for each read, so
    a next hop that sends a byte now and then could hold up a packet for hours."""

    sock: Any
    timeout: Any

    def connect(self) -> None:
        super().connect()  # type: ignore[misc]
        self.sock = _DeadlineSocket(self.sock)

    def request(self, *arguments: Any, **options: Any) -> None:
        if self.sock is not None:  # reused: its time limit is that of an earlier request
            self.sock.settimeout(self.timeout)
        super().request(*arguments, **options)  # type: ignore[misc]


class _DeadlineSocket:
    """A socket with one timeout for all reads and writes together, counted from the moment that it
    is set."""

    def __init__(self, inner: socket.socket) -> None:
        self._inner = inner
        self.settimeout(inner.gettimeout())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def settimeout(self, seconds: float | None) -> None:
        self._ends = None if seconds is None else time.monotonic() + seconds

    def limit(self) -> None:
        """Set the time that is left as the limit of the next operation."""
        left = None if self._ends is None else self._ends - time.monotonic()
        if left is not None and left <= 0:
            raise TimeoutError("no time is left")
        self._inner.settimeout(left)

    def sendall(self, data: Any) -> None:
        self.limit()
        self._inner.sendall(data)

    def makefile(self, *_: Any, **__: Any) -> io.BufferedReader:
        return io.BufferedReader(_DeadlineReader(self, self._inner.makefile("rb", buffering=0)))


class _DeadlineReader(io.RawIOBase):
    def __init__(self, limited: _DeadlineSocket, raw: Any) -> None:
        self._limited = limited
        self._raw = raw

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._limited.limit()
        number: int | None = self._raw.readinto(buffer)
        return number

    def close(self) -> None:
        self._raw.close()
        super().close()


def _checked_pools(rules: HostRules) -> dict[str, type[HTTPConnectionPool]]:
    """Connection pools whose connections go to addresses that the rules have checked."""

    def open_socket(connection: HTTPConnection) -> socket.socket:
        timeout = connection.timeout
        seconds = timeout if isinstance(timeout, int | float) else _CONNECT_SECONDS
        try:
            return rules.connect(connection.host, connection.port, seconds)
        except TimeoutError as error:
            raise ConnectTimeoutError(connection, "no connection in time") from error
        except OSError as error:
            raise NewConnectionError(connection, str(error)) from error

    class CheckedConnection(_OneDeadline, HTTPConnection):
        def _new_conn(self) -> socket.socket:
            return open_socket(self)

    class CheckedSecureConnection(_OneDeadline, HTTPSConnection):
        def _new_conn(self) -> socket.socket:
            return open_socket(self)

    class CheckedPool(HTTPConnectionPool):
        ConnectionCls = CheckedConnection

    class CheckedSecurePool(HTTPSConnectionPool):
        ConnectionCls = CheckedSecureConnection

    return {"http": CheckedPool, "https": CheckedSecurePool}


class LambdaOutbound(HttpOutbound):
    """Lambda runs nothing after a function's response. So a callback gets a call of its own: the
    function calls itself, and nobody waits for that call."""

    def __init__(
        self,
        rules: HostRules | None = None,
        client: Callable[[], Any] = make_client,
        function: str = "",
    ) -> None:
        super().__init__(rules)
        self._make_client = client
        self._function = function

    @cached_property
    def _client(self) -> Any:
        return self._make_client()

    def call_back(self, url: str, headers: Mapping[str, str], body: bytes, seconds: float) -> None:
        callback = {
            "url": url,
            "headers": dict(headers),
            "body": b64encode(body).decode(),
            "seconds": seconds,
        }
        try:
            self._client.invoke(
                FunctionName=self._function,
                InvocationType="Event",
                Payload=json.dumps({CALLBACK: callback}),
            )
        except Exception:  # the payment is committed, and an early callback is better than none
            log.exception("a callback could not be handed over")
            super().call_back(url, headers, body, seconds)

    def finish(self, callback: Mapping[str, Any]) -> None:
        """Send the callback that an earlier call has passed to this one."""
        body = b64decode(callback["body"])
        super().call_back(callback["url"], callback["headers"], body, callback["seconds"])
