"""Aether by HTTP: its own error bodies, and event streams."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs

import orjson

from farthing.aether import sse
from farthing.aether.errors import AetherError, Code, InvalidMessage
from farthing.aether.gateway import STATUS, SUPERSEDED, accepted, parse_post_event, refused
from farthing.aether.messages import Publish
from farthing.context import Agent
from farthing.handlers.calls import Event, Response
from farthing.handlers.web import answer, body_of, header, json_answer
from farthing.ports.http import NotFound
from farthing.relay.aether.publish import PaymentRequired, Superseded, TooLarge, publish
from farthing.relay.aether.streams import (
    SubscriptionNotFound,
    SubscriptionTaken,
    filters_of,
    find_subscription,
    read_log,
)
from farthing.store.http_subscriptions import HttpSubscription
from farthing.store.table import Contended

EVENT_STREAM: Final = "text/event-stream"
RETRY_MILLISECONDS: Final = 2000
_RETRY_SOON_MILLISECONDS: Final = 10  # there is more in the log
_LOOK_SECONDS: Final = 1.0


def publish_answer(agent: Agent, event: Event, body: Mapping[str, Any]) -> Response:
    message = parse_post_event(body) or Publish(body.get("event"), body.get("capability"))
    try:
        done = publish(agent, message, ip=source_ip(event))
    except AetherError as error:
        return _refused(error)
    except Contended as error:
        body = {"accepted": False, "error": Code.INTERNAL.value, "message": f"{error}, try again"}
        return json_answer(STATUS[Code.INTERNAL], body)
    return json_answer(200, accepted(done.event_id, done.message))


def _refused(error: AetherError) -> Response:
    body: dict[str, Any] = refused(error)
    if isinstance(error, PaymentRequired):
        body["quote"] = error.quote
    return json_answer(SUPERSEDED if isinstance(error, Superseded) else STATUS[error.code], body)


def source_ip(event: Event) -> str | None:
    ip: str | None = event["requestContext"]["http"].get("sourceIp")
    return ip


def subscription_answer(serve: Callable[[], dict[str, Any]]) -> Response:
    """What `serve` returns, or the error of a request about subscriptions."""
    try:
        return json_answer(200, serve())
    except SubscriptionNotFound as error:
        return json_answer(404, {"error": error.code.value})
    except AetherError as error:
        status = SUPERSEDED if isinstance(error, SubscriptionTaken) else STATUS[error.code]
        return json_answer(status, {"error": error.code.value, "message": str(error)})


def json_value(event: Event, most: int) -> object:
    """The body of a request that only Aether knows."""
    body = body_of(event)
    if len(body) > most:
        raise TooLarge(f"expected a body of at most {most} bytes, got {len(body)}")
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        raise InvalidMessage("expected a body of JSON") from None


def check_served(agent: Agent) -> None:
    if not agent.settings.aether:
        raise NotFound("Aether is not served here")


class StreamRequest(NamedTuple):
    subscription: HttpSubscription
    after: int  # the number in the log after which the stream goes on


def parse_stream_request(agent: Agent, event: Event) -> StreamRequest:
    query = parse_qs(event.get("rawQueryString") or "")

    def parameter(name: str) -> str:
        values: list[str] = query.get(name, [""])
        return values[0]

    subscription = find_subscription(agent, parameter("subscription_id"))
    named = header(event, "last-event-id") or parameter("last_event_id")
    number = sse.parse_last_event_id(named)
    return StreamRequest(subscription, subscription.start if number is None else number)


def stream_answer(
    agent: Agent, event: Event, sleep: Callable[[float], None] = time.sleep
) -> Response:
    """What the log has by now; the client comes back for more."""
    try:
        request = parse_stream_request(agent, event)
    except AetherError as error:
        failed = error
        return subscription_answer(lambda: _raise(failed))
    filters = filters_of(request.subscription)
    batch = read_log(agent, filters, request.after)
    for _ in range(agent.settings.aether_stream_seconds):
        if batch.events or not batch.is_last:
            break
        sleep(_LOOK_SECONDS)
        batch = read_log(agent, filters, batch.end)
    retry = RETRY_MILLISECONDS if batch.is_last else _RETRY_SOON_MILLISECONDS
    body = sse.body(request.subscription.id, batch.events, batch.end, retry_milliseconds=retry)
    return stream_response(body)


def stream_response(body: str = "") -> Response:
    response = answer(200, body, EVENT_STREAM)
    response["headers"]["Cache-Control"] = "no-cache"
    return response


def _raise(error: AetherError) -> dict[str, Any]:
    raise error
