"""The common part of all functions' calls: their types, and the work at the end of each call."""

from collections.abc import Callable, Mapping
from typing import Any

from farthing.context import Agent
from farthing.handlers import runtime

Event = Mapping[str, Any]
Response = dict[str, Any]
Handler = Callable[[Event, object], Response]


def client_address(event: Event) -> str | None:
    """The address of the client. Behind CloudFront it is the viewer's, which the authorizer names:
    there API Gateway sees an address of CloudFront."""
    context = event["requestContext"]
    authorizer = context.get("authorizer") or {}  # in an HTTP API, the answer is one level deeper
    viewer: str = (authorizer.get("lambda") or authorizer).get("viewer") or ""
    seen = context.get("http") or context.get("identity") or {}
    return viewer or seen.get("sourceIp")


def flush(agent: Agent) -> None:
    """Write the metrics of one call, where the meter collects them."""
    getattr(agent.meter, "flush", lambda: None)()


def scheduled_handler(work: Callable[[Agent], Response]) -> Handler:
    """A handler that a schedule calls: the event is ignored."""
    runtime.warm_up()

    def handler(_event: Event, _context: object) -> Response:
        agent = runtime.agent()
        try:
            return work(agent)
        finally:
            flush(agent)

    return handler
