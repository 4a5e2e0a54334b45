"""Numbering stored events, from the stream of the events table (NIP-CF).

Records come at least once, from several shards, in any order. Each event gets one number: a commit
that meets a number already given, or a counter that has moved, writes nothing and is made anew.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from farthing.context import Agent
from farthing.nostr.kinds import Kind
from farthing.relay.removal import vanish_if_asked
from farthing.store.changes import AlreadyNumbered, Arrival, CounterMoved
from farthing.store.spaces import NOSTR, Space
from farthing.store.table import Contended

# Each loss of the race means that another shard has made progress.
_ATTEMPTS = 100


def number_events(agent: Agent, arrivals: Sequence[Arrival], space: Space[Any] = NOSTR) -> int:
    """Number the events that have no number yet in their space's log. How many those were."""
    waiting = list({arrival.id: arrival for arrival in arrivals}.values())
    if agent.numbering is not None:
        return agent.numbering.number(waiting, space)
    log = agent.kept(space).changes
    numbered = 0
    for _ in range(_ATTEMPTS + len(waiting)):
        if not waiting:
            return numbered
        try:
            done = log.append(log.counter(), waiting)
        except AlreadyNumbered as known:
            waiting = [arrival for arrival in waiting if arrival.id not in known.ids]
        except (CounterMoved, Contended):
            continue
        else:
            numbered += done
            waiting = waiting[done:]
    raise Contended("the counter is being moved by others")


def number_all(agent: Agent, arrivals: Mapping[Space[Any], Sequence[Arrival]]) -> None:
    """Number the events of every space, each in its own log."""
    for space, some in arrivals.items():
        number_events(agent, some, space)
    # Here, because this consumer sees every stored event, whatever way it came, and never gives up.
    for arrival in arrivals.get(NOSTR, ()):
        if arrival.kind == Kind.REQUEST_TO_VANISH:
            request = agent.events.get(arrival.id)
            if request is not None:
                vanish_if_asked(agent, request.event)
