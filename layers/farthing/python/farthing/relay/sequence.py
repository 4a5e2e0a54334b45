"""Numbering stored events, from the stream of the events table (NIP-CF).

Records come at least once, from several shards, in any order. Each event gets one number: a commit
that meets a number already given, or a counter that has moved, writes nothing and is made anew.
"""

from collections.abc import Sequence

from farthing.context import Agent
from farthing.store.changes import AlreadyNumbered, Arrival, CounterMoved
from farthing.store.table import Contended

# Each loss of the race means that another shard has made progress.
_ATTEMPTS = 100


def number_events(agent: Agent, arrivals: Sequence[Arrival]) -> int:
    """Number the events that have no number yet. How many those were."""
    waiting = list({arrival.id: arrival for arrival in arrivals}.values())
    numbered = 0
    for _ in range(_ATTEMPTS + len(waiting)):
        if not waiting:
            return numbered
        try:
            done = agent.changes.append(agent.changes.counter(), waiting)
        except AlreadyNumbered as known:
            waiting = [arrival for arrival in waiting if arrival.id not in known.ids]
        except (CounterMoved, Contended):
            continue
        else:
            numbered += done
            waiting = waiting[done:]
    raise Contended("the counter is being moved by others")
