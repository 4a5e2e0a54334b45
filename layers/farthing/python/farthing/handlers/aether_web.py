"""Aether's subscriptions by HTTP: its own error bodies, and event streams."""

import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import orjson

from farthing.aether import sse
from farthing.aether.errors import AetherError, InvalidMessage, TooLarge
from farthing.aether.gateway import STATUS, SUPERSEDED
from farthing.context import Agent
from farthing.handlers.calls import Event, Response
from farthing.handlers.web import answer, body_of, header, json_answer, query_value
from farthing.ports.http import NotFound
from farthing.relay.aether.streams import (
    SubscriptionNotFound,
    SubscriptionTaken,
    filters_of,
    find_subscription,
    read_log,
)
from farthing.store.http_subscriptions import HttpSubscription

EVENT_STREAM: Final = "text/event-stream"
RETRY_MILLISECONDS: Final = 2000
_RETRY_SOON_MILLISECONDS: Final = 10  # there is more in the log
_LOOK_SECONDS: Final = 1.0


def subscription_answer(serve: Callable[[], dict[str, Any]]) -> Response:
    """The result of `serve`, or the error answer to a request about subscriptions."""
    try:
        return json_answer(200, serve())
    except SubscriptionNotFound as error:
        return json_answer(404, {"error": error.code.value})
    except AetherError as error:
        status = SUPERSEDED if isinstance(error, SubscriptionTaken) else STATUS[error.code]
        return json_answer(status, {"error": error.code.value, "message": str(error)})


def json_value(event: Event, most: int) -> object:
    """The JSON body of a request that only Aether has."""
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
    after: int  # the number in the log after which the stream continues


def parse_stream_request(agent: Agent, event: Event) -> StreamRequest:
    subscription = find_subscription(agent, query_value(event, "subscription_id"))
    named = header(event, "last-event-id") or query_value(event, "last_event_id")
    number = sse.parse_last_event_id(named)
    return StreamRequest(subscription, subscription.start if number is None else number)


def stream_answer(
    agent: Agent, event: Event, sleep: Callable[[float], None] = time.sleep
) -> Response:
    """The events that are in the log now. The client asks again for later ones."""
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
