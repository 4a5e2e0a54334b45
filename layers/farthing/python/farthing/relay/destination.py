"""Destinations: where a subscription delivers. Fan-out finds the subscriptions that want an event;
the destination owns their frames and sends them.

To add a kind of destination:

1. Give it an `Index`: the space of its events, the table that its hints stand in, and a mark of its
   own. A destination that outlives the process, such as an ILP address, names a durable table.
   Its subscriptions are written with the hints that `Index.hints` names.
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
from farthing.store.subscription_index import Index, S


class Source(Enum):
    """When a destination gets an event."""

    STORED = auto()  # as soon as it is stored, or has come where it is not stored
    NUMBERED = auto()  # when it has its number in the log of its space


@dataclass(frozen=True, eq=False)
class Destination(Generic[E, S]):
    name: str
    source: Source
    index: Index[E]
    # The subscriptions that are open at the places that hints name; others are left out.
    open_at: Callable[[Agent, Collection[str]], Mapping[str, S]]
    # Bring events to the subscriptions that want them. One that cannot be reached does not keep
    # the others from theirs; what is raised has everything brought once more, later. What is
    # returned is (event, place) of those that are to be tried again, alone.
    deliver: Callable[[Agent, Sequence[tuple[E, S]]], Sequence[tuple[E, str]]]
    # Whether an event's subscriptions are served in parts, by calls of their own, where they are
    # more than one call can serve.
    in_parts: bool = False

    def wanting(self, agent: Agent, events: Sequence[E]) -> list[tuple[E, S]]:
        """Each event with each open subscription that wants it."""
        return self.wanting_at(agent, self.index.candidates(agent.engine, events))

    def wanting_at(
        self, agent: Agent, candidates: Sequence[tuple[E, Sequence[str]]]
    ) -> list[tuple[E, S]]:
        """Each event with each subscription, among those at its places, that wants it."""

        def open_at(places: Collection[str]) -> Mapping[str, S]:
            return self.open_at(agent, places)

        return list(self.index.matching(candidates, open_at))
