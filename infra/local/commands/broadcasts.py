"""`farthing broadcasts`: where events were broadcast, what that cost, and what failed."""

from argparse import ArgumentParser, Namespace

from farthing.settings import Settings
from farthing.store.outbox import Broadcast, Delivery, DeliveryState
from infra.local.commands.bookkeeping import ERRORS as ERRORS
from infra.local.commands.bookkeeping import BookkeepingError, offline_agent
from infra.local.commands.terminal import event_id, moment, plain, whole_number


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("id", nargs="?", type=event_id, help="only this event")
    parser.add_argument(
        "--limit", type=whole_number, default=10,
        help="number of broadcasts, newest first; %(default)s if left out",
    )  # fmt: skip


def run(arguments: Namespace, settings: Settings) -> int:
    with offline_agent(settings) as agent:
        found = list(agent.outbox.broadcasts(arguments.limit)) if not arguments.id else []
        if arguments.id:
            one = agent.outbox.broadcast(arguments.id)
            if one is None:
                raise BookkeepingError("this event was never broadcast")
            found = [one]
        if not found:
            print("nothing was broadcast yet")
        for broadcast in found:
            print_broadcast(broadcast, agent.settings.tariff.unit)
    return 0


def print_broadcast(broadcast: Broadcast, unit: str) -> None:
    deliveries = broadcast.deliveries
    stored = [each for each in deliveries if each.state is DeliveryState.STORED]
    paid = sum(each.amount for each in stored)
    print(f"{broadcast.event_id}  {moment(broadcast.time)}")
    print(f"  {len(stored)} of {len(deliveries)} stored, paid {paid} {unit}")
    for each in sorted(
        deliveries, key=lambda each: (each.state is DeliveryState.STORED, each.relay)
    ):
        print(f"  {each.state:<7} {plain(each.relay):<40} {plain(_told(each))}".rstrip())


def _told(delivery: Delivery) -> str:
    match delivery.state:
        case DeliveryState.STORED:
            return f"paid {delivery.amount}" if delivery.amount else "free"
        case DeliveryState.FAILED:
            return delivery.why
    again = f"next attempt {moment(delivery.due)}" if delivery.attempts else "not attempted yet"
    return f"{again}: {delivery.why}" if delivery.why else again
