"""The common part of all functions' calls: their types, and the work at the end of each call."""

from collections.abc import Callable, Mapping
from typing import Any

from farthing.context import Agent
from farthing.handlers import runtime

Event = Mapping[str, Any]
Response = dict[str, Any]
Handler = Callable[[Event, object], Response]


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
