"""Destinations of subscriptions. Fan-out finds the subscriptions that match an event; the
destination makes their frames and sends them.

To add a kind of destination:

1. Give it an `Index`: the space of its events, the table of its hints, and its own mark. A
   destination that outlives the process, such as an ILP address, names a durable table. Its
   subscriptions are written with the hints that `Index.hints` names.
2. Write `open_at`, which reads the subscriptions that hints name, and `deliver`, which sends.
3. Add a `Destination` to the one list in `relay/destinations.py`.

A destination that is a socket uses the subscriptions of `store/subscriptions.py` for the first two
and adds its `Feed` there.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Generic

from farthing.context import Agent
from farthing.store.spaces import E
from farthing.store.subscription_index import Hints, Index, S, StoredHints


class Source(Enum):
    """When a destination gets an event."""

    STORED = auto()  # as soon as the event is stored; an ephemeral event as soon as it has come
    NUMBERED = auto()  # when the event has its number in the log of its space


@dataclass(frozen=True, eq=False)
class Destination(Generic[E, S]):
    name: str
    source: Source
    index: Index[E]
    # Reads the open subscriptions at the places that hints name. Closed ones are left out.
    open_at: Callable[[Agent, Collection[str]], Mapping[str, S]]
    # Delivers events to the matching subscriptions. An unreachable subscription does not stop the
    # others. An exception makes the whole delivery run again later. Returns (event, place) of the
    # deliveries that alone must be tried again.
    deliver: Callable[[Agent, Sequence[tuple[E, S]]], Sequence[tuple[E, str]]]
    # Whether an event with more subscriptions than one call can serve is delivered in parts, by
    # separate calls.
    in_parts: bool = False
    # The last change of the stream that a subscription found among the stored events. 0: unknown.
    opened_after: Callable[[S], int] = lambda _subscription: 0
    # Where the hints of the index are. By default they are in its table.
    hints: Callable[[Agent], Hints] = lambda agent: StoredHints(agent.engine)

    def is_unused(self, agent: Agent) -> bool:
        """Whether the destination is known to have no subscriptions."""
        return self.hints(agent).is_unused(self.index)

    def candidates(self, agent: Agent, events: Sequence[E]) -> list[tuple[E, list[str]]]:
        """Each event with the places of subscriptions that may match it."""
        return self.index.candidates(self.hints(agent), events)

    def wanting(self, agent: Agent, events: Sequence[E]) -> list[tuple[E, S]]:
        """Each event with each open subscription that matches it."""
        return self.wanting_at(agent, self.candidates(agent, events))

    def wanting_at(
        self, agent: Agent, candidates: Sequence[tuple[E, Sequence[str]]]
    ) -> list[tuple[E, S]]:
        """Each event with each matching subscription among those at its places."""

        def open_at(places: Collection[str]) -> Mapping[str, S]:
            return self.open_at(agent, places)

        return list(self.index.matching(candidates, open_at))
