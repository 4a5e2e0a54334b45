"""Frames and requests as API Gateway would hand them to handlers."""

import itertools
import re
import secrets
import time
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from farthing.surface import DEFAULT

STAGE = "local"
ACCOUNT = "000000000000"
REGION = "local"

_VERB = re.compile(r'\s*\[\s*"([A-Z-]{1,16})"').match
_request_ids = itertools.count(1)


def route_key(body: str) -> str:
    """What the route selection `$request.body.[0]` evaluates to."""
    found = _VERB(body)
    return found[1] if found else DEFAULT


class SocketContext:
    """The request contexts of one WebSocket connection."""

    def __init__(self, source_ip: str, domain_name: str) -> None:
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

    def event(self, event_type: str, route: str, body: str | None = None) -> dict[str, Any]:
        # Strictly increasing: the order of two messages is never in doubt.
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
    """What goes out for what a handler has returned, None if it failed."""
    if answer is None:
        body = orjson.dumps({"message": "Internal Server Error"})
        return HttpAnswer(500, {"Content-Type": "application/json"}, body)
    text = answer.get("body", "")
    body = b64decode(text) if answer.get("isBase64Encoded") else text.encode()
    return HttpAnswer(answer["statusCode"], answer.get("headers") or {}, body)


def _now_ms() -> int:
    return int(time.time() * 1000)
