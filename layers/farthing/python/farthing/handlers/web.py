"""HTTP API events (payload version 2), and answers to them."""

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

import orjson

from farthing.context import Agent
from farthing.handlers import runtime
from farthing.handlers.calls import Event, Handler, Response, client_address, flush
from farthing.nostr.events import InvalidEvent
from farthing.nostr.messages import Prefix, Refused
from farthing.ports.http import BadRequest, HttpError, TooLarge
from farthing.relay.refusals import note_refusal

# Web pages of any origin may read every answer, as NIP-11 demands for the information document, and
# may pay. `*` stands for every header except Authorization, which must be named.
CORS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Headers": (
        "*, Authorization, Content-Type, Idempotency-Key, Prefer, Request-Id"
    ),
    "Access-Control-Allow-Methods": "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT",
    "Access-Control-Expose-Headers": "*",
}

_MOST_FIELDS = 20
_RETRY_SECONDS = "1"  # rates are per second

# The HTTP status for each prefix of a refusal. Prefixes that are not listed give 403.
_STATUS = {Prefix.INVALID: 400, Prefix.DUPLICATE: 409, Prefix.RATE_LIMITED: 429, Prefix.ERROR: 503}


def web_handler(serve: Callable[[Agent, Event], Response]) -> Handler:
    """A handler for HTTP routes. Errors become problem documents here and nowhere else."""
    runtime.warm_up()

    def handler(event: Event, _context: object) -> Response:
        agent = runtime.agent()
        try:
            return serve(agent, event)
        except HttpError as error:
            _note(agent, event, error)
            return problem(error.status, str(error), error.more, error.scheme)
        except InvalidEvent as error:
            _note(agent, event, error)
            return problem(400, str(error))
        except Refused as refused:
            _note(agent, event, refused)
            return problem(_STATUS.get(refused.prefix, 403), str(refused))
        finally:
            flush(agent)

    return handler


def _note(agent: Agent, event: Event, refusal: Exception) -> None:
    """The route is logged, and not the path: the id of an HTTP subscription is a secret."""
    note_refusal(agent, event["routeKey"], str(refusal), client=client_address(event))


def method_of(event: Event) -> str:
    method: str = event["requestContext"]["http"]["method"]
    return method


def path_of(event: Event) -> str:
    path: str = event.get("rawPath") or "/"
    return path


def parameter(event: Event, name: str) -> str:
    """The value of a parameter in the route's path."""
    value: str = event["pathParameters"][name]
    return value


def query_value(event: Event, name: str) -> str:
    """The value of a parameter in the query, or an empty text."""
    query: str = event.get("rawQueryString") or ""
    try:
        return dict(parse_qsl(query, max_num_fields=_MOST_FIELDS)).get(name, "")
    except ValueError:
        raise BadRequest(f"expected at most {_MOST_FIELDS} parameters in the query") from None


def header(event: Event, name: str) -> str:
    """Header names are lower case in this payload version."""
    value: str = (event.get("headers") or {}).get(name, "")
    return value


def body_of(event: Event) -> bytes:
    body: str = event.get("body") or ""
    try:
        return b64decode(body, validate=True) if event.get("isBase64Encoded") else body.encode()
    except ValueError:
        return b""


def json_body(event: Event, most: int) -> dict[str, Any]:
    """The JSON object in the body, which may have at most `most` bytes."""
    body = body_of(event)
    if len(body) > most:
        raise TooLarge(f"expected a body of at most {most} bytes, got {len(body)}")
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise BadRequest("expected a body of JSON") from None
    if type(value) is not dict:
        raise BadRequest("expected a JSON object as the body")
    return value


def problem(
    status: int, detail: str, more: Mapping[str, Any] | None = None, scheme: str = "Bearer"
) -> Response:
    """An error that programs can read (RFC 9457)."""
    title = HTTPStatus(status).phrase
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    response = json_answer(status, {**body, **(more or {})}, "application/problem+json")
    if status == HTTPStatus.UNAUTHORIZED:
        response["headers"]["WWW-Authenticate"] = scheme
    return response


def _with_retry(response: Response) -> Response:
    """A 429 response with the time after which the client may ask again."""
    if response["statusCode"] == HTTPStatus.TOO_MANY_REQUESTS:
        response["headers"]["Retry-After"] = _RETRY_SECONDS
    return response


def html_answer(status: int, page: str, headers: Mapping[str, str]) -> Response:
    response = answer(status, page, "text/html; charset=utf-8")
    response["headers"].update(headers)
    return response


def redirect(location: str) -> Response:
    response = answer(303)
    response["headers"]["Location"] = location
    return response


def url_of(agent: Agent, event: Event) -> str:
    """The URL of a request as its client knows it: at our public address, or, if none is set, at
    the host in the request."""
    settings = agent.settings
    is_public = settings.web_url or settings.relay_url
    base = settings.http_url if is_public else f"http://{header(event, 'host')}"
    query = event.get("rawQueryString") or ""
    return f"{base}{path_of(event)}{'?' if query else ''}{query}"


def accepts(event: Event, media_type: str) -> bool:
    """Whether the client names the media type among those that it accepts."""
    named = (part.partition(";")[0].strip() for part in header(event, "accept").lower().split(","))
    return media_type in named


def octets_answer(
    status: int, body: bytes, media_type: str = "application/octet-stream"
) -> Response:
    response = answer(status, b64encode(body).decode(), media_type)
    return {**response, "isBase64Encoded": True}


def answer(status: int, body: str = "", media_type: str = "text/plain; charset=utf-8") -> Response:
    headers = {**CORS, "Content-Type": media_type}
    return {"statusCode": status, "headers": headers, "body": body, "isBase64Encoded": False}


def json_answer(status: int, body: object, media_type: str = "application/json") -> Response:
    return _with_retry(answer(status, orjson.dumps(body).decode(), media_type))
