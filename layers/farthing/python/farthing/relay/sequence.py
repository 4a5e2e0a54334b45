"""Numbering stored events, from the stream of the events table (NIP-CF).

Records come at least once, from several shards, in any order. Each event gets one number: if the
event has a number already or the counter has moved, the commit writes nothing and is made again.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from farthing.context import Agent
from farthing.nostr.kinds import Kind
from farthing.relay.removal import vanish_if_asked
from farthing.store.changes import AlreadyNumbered, Arrival, CounterMoved
from farthing.store.spaces import NOSTR, Space
from farthing.store.table import Contended

# Each lost race means that another shard has made progress.
_ATTEMPTS = 100


def number_events(agent: Agent, arrivals: Sequence[Arrival], space: Space[Any] = NOSTR) -> int:
    """Number the events that have no number yet in their space's log. Returns how many got a
    number."""
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
    raise Contended("other processes are changing the counter")


def number_all(agent: Agent, arrivals: Mapping[Space[Any], Sequence[Arrival]]) -> None:
    """Number the events of every space, each in its own log."""
    for space, some in arrivals.items():
        number_events(agent, some, space)
    # The call is here because this consumer sees every stored event from every source, and never
    # gives up. For most requests `publish` has removed all events already.
    for arrival in arrivals.get(NOSTR, ()):
        if arrival.kind == Kind.REQUEST_TO_VANISH:
            request = agent.events.get(arrival.id)
            if request is not None:
                vanish_if_asked(agent, request.event)
    owner = agent.settings.pubkey
    if agent.settings.broadcast_all and any(
        arrival.pubkey == owner for arrival in arrivals.get(NOSTR, ())
    ):
        agent.broadcast_wakes.wake_for_new()
