"""HTTP API events (payload version 2), and answers to them."""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import orjson

Event = Mapping[str, Any]
Response = dict[str, Any]

# A web page of any origin may read every answer (NIP-11 demands it for the information document),
# and may pay. `*` stands for every header but Authorization, which has to be named.
CORS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Headers": (
        "*, Authorization, Content-Type, Idempotency-Key, Prefer, Request-Id"
    ),
    "Access-Control-Allow-Methods": "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT",
    "Access-Control-Expose-Headers": "*",
}


def method_of(event: Event) -> str:
    method: str = event["requestContext"]["http"]["method"]
    return method


def path_of(event: Event) -> str:
    path: str = event.get("rawPath") or "/"
    return path


def header(event: Event, name: str) -> str:
    """Header names are lower case in this payload version."""
    value: str = (event.get("headers") or {}).get(name, "")
    return value


class InvalidBody(ValueError):
    """The body is not what the path takes."""

    status = 400


class BodyTooLarge(InvalidBody):
    """The body has more bytes than the path takes."""

    status = 413


def body_of(event: Event) -> bytes:
    body: str = event.get("body") or ""
    try:
        return b64decode(body, validate=True) if event.get("isBase64Encoded") else body.encode()
    except ValueError:
        return b""


def json_body(event: Event, most: int) -> dict[str, Any]:
    """The object that the body holds, in at most so many bytes."""
    body = body_of(event)
    if len(body) > most:
        raise BodyTooLarge(f"the body has more than {most} bytes")
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise InvalidBody("the body is not JSON") from None
    if type(value) is not dict:
        raise InvalidBody("the body is not a JSON object")
    return value


def problem(status: int, detail: str, more: Mapping[str, Any] | None = None) -> Response:
    """An error that programs can read (RFC 9457)."""
    title = HTTPStatus(status).phrase
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    return json_answer(status, {**body, **(more or {})}, "application/problem+json")


def octets_answer(status: int, body: bytes) -> Response:
    response = answer(status, b64encode(body).decode(), "application/octet-stream")
    return {**response, "isBase64Encoded": True}


def answer(status: int, body: str = "", media_type: str = "text/plain; charset=utf-8") -> Response:
    headers = {**CORS, "Content-Type": media_type}
    return {"statusCode": status, "headers": headers, "body": body, "isBase64Encoded": False}


def json_answer(status: int, body: object, media_type: str = "application/json") -> Response:
    return answer(status, orjson.dumps(body).decode(), media_type)
