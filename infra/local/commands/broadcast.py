"""`farthing broadcast`: send a stored event to other relays, and pay each of them: the relays of
followers and of mentioned keys, and hubs. A second call tries again where the first has failed."""

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path

from farthing.agent.broadcast import NotBroadcast, broadcast, deliver_due
from farthing.context import Agent
from farthing.settings import Settings
from farthing.store.outbox import DeliveryState
from infra.local.commands.bookkeeping import ERRORS as BOOKKEEPING_ERRORS
from infra.local.commands.bookkeeping import BookkeepingError, offline_agent
from infra.local.commands.broadcasts import print_broadcast
from infra.local.commands.terminal import event_id, whole_number
from infra.local.server.folder import CannotStart, hold_folder

ERRORS = (*BOOKKEEPING_ERRORS, NotBroadcast)

FIRST_ATTEMPTS_SECONDS = 30
_LOOK_SECONDS = 0.2


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("id", type=event_id, help="id of an event that is stored here")
    parser.add_argument(
        "--wait",
        type=whole_number,
        default=FIRST_ATTEMPTS_SECONDS,
        help="seconds to wait for the first attempts, which go on after that; %(default)s if"
        " left out",
    )


def run(arguments: Namespace, settings: Settings) -> int:
    with offline_agent(settings) as agent:
        return place(agent, arguments.id, arguments.wait)


def place(agent: Agent, id: str, seconds: int) -> int:
    """Broadcast an event and print the results of the first attempts."""
    stored = agent.events.get(id)
    if stored is None:
        raise BookkeepingError("this event is not stored here")
    if not broadcast(agent, stored.event, retry_failed=True):
        print("no relay is known for this event: neither the keys that it mentions nor your")
        print("followers have a known relay list, and FARTHING_BROADCAST_HUBS is empty")
        return 1
    _wait(agent, id, seconds, _worker(agent))
    found = agent.outbox.broadcast(id)
    assert found is not None
    print_broadcast(found, agent.settings.tariff.unit)
    return 1 if all(each.state is DeliveryState.FAILED for each in found.deliveries) else 0


def _worker(agent: Agent) -> Callable[[], object]:
    """A server that runs on the data folder delivers. If there is none, this command does."""
    if agent.settings.deployed:
        return lambda: None
    try:
        lock = hold_folder(Path(agent.settings.data))
    except CannotStart:
        return lambda: None

    def deliver() -> None:
        assert not lock.closed
        deliver_due(agent)

    return deliver


def _wait(agent: Agent, id: str, seconds: int, work: Callable[[], object]) -> None:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        work()
        found = agent.outbox.broadcast(id)
        waiting = found.deliveries if found else []
        if not any(each.state is DeliveryState.DUE and not each.why for each in waiting):
            return
        time.sleep(_LOOK_SECONDS)
