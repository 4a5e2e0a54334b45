"""`farthing redrive`: what a deployed relay's stream handlers have given up on, handled after all.

A failure queue says when the lost records were written and not what they were: the events are
looked up in the tables. A message is deleted when its events are through.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson
from botocore.exceptions import BotoCoreError, ClientError
from botocore.session import get_session

from farthing.agent.recover import Span, deliver_again, number_again, push_again
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
_HIDDEN_SECONDS = 15 * _MINUTE  # from a second redrive, while this one is at it
_WAIT_SECONDS = 1  # SQS then asks all of its servers, and misses no message
_EVER = 2**40
_DELIVERIES = "deliveries"


@dataclass(frozen=True)
class _Consumer:
    """What to do again, and how long before its record an event may have been written."""

    again: Callable[[Agent, Span], int]
    before: int
    done: str


# An event's second is taken when its write begins. What is pushed was numbered before, and the
# sequencer has an hour's patience.
CONSUMERS: Mapping[str, _Consumer] = {
    "sequencer": _Consumer(number_again, 2 * _MINUTE, "numbered"),
    "push": _Consumer(push_again, 2 * _HOUR, "brought to live feeds"),
    "fanout": _Consumer(deliver_again, 2 * _MINUTE, "offered to subscriptions"),
}


def new_client(service: str) -> Any:
    return get_session().create_client(service)


def deployed_agent(prefix: str, clients: Clients = new_client) -> Agent:
    """The agent that the deployed handlers work for, as far as streams need it: without its key."""
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
    """Wake the paid subscriptions that could not be served. How many messages are no wakes."""
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
    parser.add_argument("--dry-run", action="store_true", help="only look into the queues")
    parser.add_argument(
        "--unnumbered",
        action="store_true",
        help="number every stored event that has no number, whatever the queues say",
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
        print(f"sequencer  {number_again(agent, Span(0, _EVER))} events numbered")
        return 0
    unreadable = 0
    for name, consumer in CONSUMERS.items():
        queue = _Queue(clients("sqs"), f"{prefix}{name}-failures")
        if arguments.dry_run:
            print(f"{name:<11}{queue.length()} messages")
            continue
        spans = {each["ReceiptHandle"]: span_of(each["Body"]) for each in queue.messages()}
        known = {handle: span for handle, span in spans.items() if span is not None}
        unreadable += len(spans) - len(known)
        handled = _handle(agent, consumer, list(known.values()))
        queue.delete(known)
        print(f"{name:<11}{len(spans)} messages, {handled} events {consumer.done}")
    wakes = _Queue(clients("sqs"), f"{prefix}{_DELIVERIES}-failures")
    if arguments.dry_run:
        print(f"{_DELIVERIES:<11}{wakes.length()} messages")
    else:
        unreadable += _wake_again(agent, wakes)
    for each in QUEUES:
        if each.name != _DELIVERIES:
            _send_again(clients("sqs"), prefix, each, look_only=arguments.dry_run)
    if unreadable:
        print(f"{unreadable} messages are of no kind that we know: they stay in their queues")
    return 1 if unreadable else 0


def _send_again(client: Any, prefix: str, queue: Queue, *, look_only: bool) -> None:
    """Messages of a queue are whole: they go back to it as they are."""
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


def _handle(agent: Agent, consumer: _Consumer, spans: list[Span]) -> int:
    """Together where they overlap: a bad minute leaves many messages, and each look reads an
    index."""
    joined: list[Span] = []
    for span in sorted(spans, key=lambda span: span.first):
        wide = Span(span.first - consumer.before, span.last)
        if joined and wide.first <= joined[-1].last + 1:
            joined[-1] = Span(joined[-1].first, max(joined[-1].last, wide.last))
        else:
            joined.append(wide)
    return sum(consumer.again(agent, span) for span in joined)


def span_of(body: str) -> Span | None:
    """When the records that a message tells of came into the stream."""
    try:
        batch = orjson.loads(body)["DDBStreamBatchInfo"]
        first, last = (
            datetime.fromisoformat(batch[f"approximateArrivalOf{which}Record"]).timestamp()
            for which in ("First", "Last")
        )
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return None
    return Span(int(first), int(last) + 1)


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
        """All that are there; until they are deleted they only hide for a while."""
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
