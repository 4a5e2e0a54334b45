"""Frames and requests as API Gateway would hand them to handlers."""

import itertools
import re
import secrets
import time
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from farthing.aether import frames
from farthing.aether.frames import InvalidFrame, MessageType
from farthing.surface import DEFAULT, MESSAGES, Work

STAGE = "local"
ACCOUNT = "000000000000"
REGION = "local"

_VERB = re.compile(r'\s*\[\s*"([A-Z-]{1,16})"').match
_TYPE = re.compile(r'\s*\{\s*"type"\s*:\s*"([a-z]{1,16})"').match
_WORK = {message.key: message.work for message in MESSAGES}
_request_ids = itertools.count(1)


def route_key(body: str) -> str:
    """What the route selection `$request.body.[0]` evaluates to."""
    found = _VERB(body)
    return found[1] if found else DEFAULT


def aether_type(frame: str | bytes) -> str | None:
    """The type of an Aether message; empty if only parsing the whole frame would tell; None if the
    frame is not Aether's."""
    if isinstance(frame, str):
        start = frame.lstrip()[:1]
        if start == "[":
            return None
        if start == "{":
            found = _TYPE(frame)
            return found[1] if found else ""
    elif frame[:1] == b"{":
        return ""
    try:
        octets = frames.from_text(frame) if isinstance(frame, str) else frame
        return frames.decode(octets).type.word
    except InvalidFrame:
        return None


def work_of(route: str, aether: str | None) -> Work:
    """The kind of work that a message of this route, or of this Aether type, is."""
    if aether is None:
        return _WORK.get(route, _WORK[DEFAULT])
    return Work.WRITE if aether == MessageType.PUBLISH.word else Work.READ


class SocketContext:
    """The request contexts of one WebSocket connection."""

    def __init__(
        self, source_ip: str, domain_name: str, headers: Mapping[str, str] | None = None
    ) -> None:
        self._headers = dict(headers or {})  # the headers of the handshake that handlers read
        self.connection_id = secrets.token_urlsafe(12)
        self._last_time = 0
        self._base: dict[str, Any] = {
            "connectionId": self.connection_id,
            "domainName": domain_name,
            "stage": STAGE,
            "apiId": "farthing",
            "connectedAt": _now_ms(),
            "identity": {"sourceIp": source_ip},
            "messageDirection": "IN",
        }

    def event(self, event_type: str, route: str, body: str | bytes | None = None) -> dict[str, Any]:
        # Strictly increasing, so that the order of two messages is always known.
        self._last_time = max(_now_ms(), self._last_time + 1)
        request_id = f"local-{next(_request_ids)}"
        context = {
            **self._base,
            "eventType": event_type,
            "routeKey": route,
            "requestTimeEpoch": self._last_time,
            "requestId": request_id,
            "extendedRequestId": request_id,
        }
        event: dict[str, Any] = {"requestContext": context, "isBase64Encoded": False}
        if event_type == "CONNECT":
            event["headers"] = self._headers
        # In the form of API Gateway's HTTP events: its WebSockets have no bytes.
        if isinstance(body, bytes):
            event["isBase64Encoded"] = True
            body = b64encode(body).decode()
        if body is not None:
            context["messageId"] = request_id
            event["body"] = body
        return event


def http_event(
    method: str,
    path: str,
    query: str,
    headers: Mapping[str, str],
    body: bytes,
    source_ip: str,
    route_key: str = DEFAULT,
    parameters: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """An HTTP API request, payload version 2."""
    lowered = {name.lower(): value for name, value in headers.items()}
    host = lowered.get("host", "")
    event = {
        "version": "2.0",
        "routeKey": route_key,
        "rawPath": path,
        "rawQueryString": query,
        "headers": lowered,
        "requestContext": {
            "accountId": ACCOUNT,
            "apiId": "farthing",
            "domainName": host,
            "http": {
                "method": method,
                "path": path,
                "protocol": "HTTP/1.1",
                "sourceIp": source_ip,
                "userAgent": lowered.get("user-agent", ""),
            },
            "requestId": f"local-{next(_request_ids)}",
            "stage": "$default",
            "timeEpoch": _now_ms(),
        },
        "body": b64encode(body).decode() if body else "",
        "isBase64Encoded": bool(body),
    }
    if parameters:
        event["pathParameters"] = dict(parameters)
    return event


class HttpAnswer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


def http_answer(answer: Mapping[str, Any] | None) -> HttpAnswer:
    """The HTTP response for a handler's result, which is None if the handler failed."""
    if answer is None:
        body = orjson.dumps({"message": "Internal Server Error"})
        return HttpAnswer(500, {"Content-Type": "application/json"}, body)
    text = answer.get("body", "")
    body = b64decode(text) if answer.get("isBase64Encoded") else text.encode()
    return HttpAnswer(answer["statusCode"], answer.get("headers") or {}, body)


def _now_ms() -> int:
    return int(time.time() * 1000)
