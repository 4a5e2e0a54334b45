"""HTTP API events (payload version 2), and answers to them."""

from collections.abc import Mapping
from typing import Any

import orjson

Event = Mapping[str, Any]
Response = dict[str, Any]

# NIP-11: a page of any origin may read the relay information document.
CORS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Headers": "*",
    "Access-Control-Allow-Methods": "GET, HEAD, POST, OPTIONS",
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


def answer(status: int, body: str = "", media_type: str = "text/plain; charset=utf-8") -> Response:
    headers = {**CORS, "Content-Type": media_type}
    return {"statusCode": status, "headers": headers, "body": body, "isBase64Encoded": False}


def json_answer(status: int, body: object, media_type: str = "application/json") -> Response:
    return answer(status, orjson.dumps(body).decode(), media_type)
