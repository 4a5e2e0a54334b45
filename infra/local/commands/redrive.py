"""`farthing redrive`: retry the records and messages that a deployed relay has given up on.

A message in the failure queue of a stream says when the lost records were written, but not which
events they held: the events are looked up in the tables. The message is deleted when its events
have been handled.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson
from botocore.exceptions import BotoCoreError, ClientError
from botocore.session import get_session

from farthing.agent.recover import Period, deliver_again, number_again, push_again
from farthing.aws.connections import GatewayConnections
from farthing.aws.recipients import SqsRecipients
from farthing.aws.wakes import SqsWakes
from farthing.context import Agent
from farthing.ports.wakes import read_wake
from farthing.settings import Settings
from farthing.store.dynamodb import DynamoDBEngine
from farthing.store.table import StoreError
from farthing.surface import QUEUES, Queue

ERRORS = (BotoCoreError, ClientError, StoreError)
Clients = Callable[[str], Any]

_MINUTE, _HOUR = 60, 3600
_MESSAGES_AT_ONCE = 10
_HIDDEN_SECONDS = 15 * _MINUTE  # hidden from a second redrive while this one runs
_WAIT_SECONDS = 1  # with a wait, SQS asks all of its servers and misses no message
_EVER = 2**40
_DELIVERIES = "deliveries"


@dataclass(frozen=True)
class _Consumer:
    """The work to repeat, and how long before its record an event may have been written."""

    again: Callable[[Agent, Period], int]
    before: int
    done: str


# An event gets its second when its write begins. Pushed events were numbered before that, and the
# sequencer retries for an hour.
CONSUMERS: Mapping[str, _Consumer] = {
    "sequencer": _Consumer(number_again, 2 * _MINUTE, "numbered"),
    "push": _Consumer(push_again, 2 * _HOUR, "pushed to live feeds"),
    "fanout": _Consumer(deliver_again, 2 * _MINUTE, "offered to subscriptions"),
}


def new_client(service: str) -> Any:
    return get_session().create_client(service)


def deployed_agent(prefix: str, clients: Clients = new_client) -> Agent:
    """The agent of the deployed handlers, with the parts that streams need: without its key."""
    found = clients("lambda").get_function_configuration(FunctionName=f"{prefix}fanout")
    variables = found["Environment"]["Variables"]
    return Agent(
        settings=Settings.from_env(variables),
        engine=DynamoDBEngine(prefix=prefix),
        connections=GatewayConnections(variables["FARTHING_CONNECTIONS_URL"]),
        recipients=SqsRecipients(variables["FARTHING_RECIPIENTS_QUEUE_URL"]),
        wakes=SqsWakes(_deliveries_url(prefix, clients), lambda: clients("sqs")),
    )


def _deliveries_url(prefix: str, clients: Clients) -> str:
    found = clients("sqs").get_queue_url(QueueName=f"{prefix}{_DELIVERIES}")
    url: str = found["QueueUrl"]
    return url


def _wake_again(agent: Agent, queue: "_Queue") -> int:
    """Wake the paid subscriptions that could not be served. Returns the number of messages that
    are not wakes."""
    handled, unreadable = {}, 0
    for message in queue.messages():
        try:
            wake = read_wake(message["Body"])
        except ValueError:
            unreadable += 1
        else:
            agent.wakes.wake(*wake)
            handled[message["ReceiptHandle"]] = wake
    queue.delete(handled)
    total = len(handled) + unreadable
    print(f"{_DELIVERIES:<11}{total} messages, {len(set(handled.values()))} subscriptions woken")
    return unreadable


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--dry-run", action="store_true", help="only count the messages of each queue"
    )
    parser.add_argument(
        "--unnumbered",
        action="store_true",
        help="number all stored events without a number; the queues are not used",
    )


def run(
    arguments: Namespace,
    settings: Settings,
    clients: Clients = new_client,
    agent_of: Callable[[str, Clients], Agent] = deployed_agent,
) -> int:
    prefix = settings.table_prefix
    agent = agent_of(prefix, clients)
    if arguments.unnumbered:
        print(f"sequencer  {number_again(agent, Period(0, _EVER))} events numbered")
        return 0
    unreadable = 0
    for name, consumer in CONSUMERS.items():
        queue = _Queue(clients("sqs"), f"{prefix}{name}-failures")
        if arguments.dry_run:
            print(f"{name:<11}{queue.length()} messages")
            continue
        periods = {each["ReceiptHandle"]: period_of(each["Body"]) for each in queue.messages()}
        known = {handle: period for handle, period in periods.items() if period is not None}
        unreadable += len(periods) - len(known)
        handled = _handle(agent, consumer, list(known.values()))
        queue.delete(known)
        print(f"{name:<11}{len(periods)} messages, {handled} events {consumer.done}")
    wakes = _Queue(clients("sqs"), f"{prefix}{_DELIVERIES}-failures")
    if arguments.dry_run:
        print(f"{_DELIVERIES:<11}{wakes.length()} messages")
    else:
        unreadable += _wake_again(agent, wakes)
    for each in QUEUES:
        if each.name != _DELIVERIES:
            _send_again(clients("sqs"), prefix, each, look_only=arguments.dry_run)
    if unreadable:
        print(f"{unreadable} messages have an unknown form: they stay in their queues")
    return 1 if unreadable else 0


def _send_again(client: Any, prefix: str, queue: Queue, *, look_only: bool) -> None:
    """Send the failed messages of a queue back to it, unchanged."""
    failures, own = _Queue(client, prefix + queue.failures), _Queue(client, prefix + queue.name)
    if look_only:
        print(f"{queue.name:<11}{failures.length()} messages")
        return
    sent = 0
    for message in failures.messages():
        own.send(message["Body"])
        failures.delete({message["ReceiptHandle"]: None})
        sent += 1
    print(f"{queue.name:<11}{sent} messages, sent to their queue again")


def _handle(agent: Agent, consumer: _Consumer, periods: list[Period]) -> int:
    """Handle the periods, and join those that overlap: a bad minute leaves many messages, and each
    period costs a read of an index."""
    joined: list[Period] = []
    for period in sorted(periods, key=lambda period: period.first):
        wide = Period(period.first - consumer.before, period.last)
        if joined and wide.first <= joined[-1].last + 1:
            joined[-1] = Period(joined[-1].first, max(joined[-1].last, wide.last))
        else:
            joined.append(wide)
    return sum(consumer.again(agent, period) for period in joined)


def period_of(body: str) -> Period | None:
    """The time in which the records of a message came into the stream."""
    try:
        batch = orjson.loads(body)["DDBStreamBatchInfo"]
        first, last = (
            datetime.fromisoformat(batch[f"approximateArrivalOf{which}Record"]).timestamp()
            for which in ("First", "Last")
        )
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return None
    return Period(int(first), int(last) + 1)


class _Queue:
    def __init__(self, client: Any, name: str) -> None:
        self._client = client
        self._url = client.get_queue_url(QueueName=name)["QueueUrl"]

    def send(self, body: str) -> None:
        self._client.send_message(QueueUrl=self._url, MessageBody=body)

    def length(self) -> int:
        name = "ApproximateNumberOfMessages"
        asked = self._client.get_queue_attributes(QueueUrl=self._url, AttributeNames=[name])
        return int(asked["Attributes"][name])

    def messages(self) -> Iterator[dict[str, Any]]:
        """All messages of the queue. A message that is not deleted appears again after a while."""
        while some := self._client.receive_message(
            QueueUrl=self._url,
            MaxNumberOfMessages=_MESSAGES_AT_ONCE,
            VisibilityTimeout=_HIDDEN_SECONDS,
            WaitTimeSeconds=_WAIT_SECONDS,
        ).get("Messages"):
            yield from some

    def delete(self, handles: Mapping[str, object]) -> None:
        for handle in handles:
            self._client.delete_message(QueueUrl=self._url, ReceiptHandle=handle)
