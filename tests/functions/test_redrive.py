"""`farthing redrive` over queues and tables as AWS has them: moto's."""

import json
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import boto3
import pytest

from farthing.context import Agent
from farthing.ports.wakes import write_wake
from farthing.settings import Settings
from farthing.surface import QUEUES
from infra.local.commands.redrive import CONSUMERS, Period, deployed_agent, period_of
from infra.local.commands.redrive import run as redrive
from tests.relay.world import START, Client, connections_of, signed
from tests.subscriptions.world import QueuedWakes

REGION = "us-east-1"


def moment(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).isoformat().replace("+00:00", "Z")


def failure(first: int, last: int) -> str:
    """What Lambda sends to the destination of a stream's failures."""
    return json.dumps({
        "requestContext": {"requestId": "r", "condition": "RetryAttemptsExhausted"},
        "version": "1.0",
        "timestamp": moment(last + 3600),
        "DDBStreamBatchInfo": {
            "shardId": "shardId-1", "startSequenceNumber": "1", "endSequenceNumber": "2",
            "approximateArrivalOfFirstRecord": moment(first),
            "approximateArrivalOfLastRecord": moment(last),
            "batchSize": 2, "streamArn": "arn:aws:dynamodb:...",
        },
    })  # fmt: skip


@pytest.fixture
def queues(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    # Moto misses nothing, and would wait for real.
    monkeypatch.setattr("infra.local.commands.redrive._WAIT_SECONDS", 0)
    client = boto3.client("sqs", region_name=REGION)
    made = {
        name: boto3.resource("sqs", region_name=REGION).Queue(
            client.create_queue(QueueName=f"farthing-{name}-failures")["QueueUrl"]
        )
        for name in [*CONSUMERS, *(queue.name for queue in QUEUES)]
    }
    for queue in QUEUES:
        url = client.create_queue(QueueName=f"farthing-{queue.name}")["QueueUrl"]
        made[f"own {queue.name}"] = boto3.resource("sqs", region_name=REGION).Queue(url)
    yield made
    for queue in made.values():
        queue.delete()


def run(agent: Agent, **arguments: bool) -> int:
    given = {"dry_run": False, "unnumbered": False, **arguments}
    return redrive(
        Namespace(**given),
        Settings(),
        clients=lambda service: boto3.client(service, region_name=REGION),
        agent_of=lambda *_: agent,
    )


def left(queue: Any) -> int:
    """Also those that hide."""
    queue.reload()
    names = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")
    return sum(int(queue.attributes[name]) for name in names)


def test_every_queue_is_worked_off(
    agent: Agent, queues: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    client = Client(agent)
    client.send("REQ", "x", {"kinds": [1], "limit": 0})
    event = signed()
    agent.events.save(event)  # and neither numbered nor delivered
    for name in CONSUMERS:
        queues[name].send_message(MessageBody=failure(START, START))
        queues[name].send_message(MessageBody=failure(START, START + 1))
    queues["broadcasts"].send_message(MessageBody=event.id)
    for _ in range(2):
        queues["deliveries"].send_message(MessageBody=write_wake("key:a", "s1"))
    woken = QueuedWakes()

    assert run(replace(agent, wakes=woken)) == 0

    assert agent.changes.numbers_of([event.id]).get(event.id) == 1
    assert [frame[2]["id"] for frame in connections_of(agent).take(client.id)] == [event.id]
    kept = {name: left(queue) for name, queue in queues.items()}
    assert kept == {**dict.fromkeys(queues, 0), "own broadcasts": 1}
    assert list(woken.waiting) == [("key:a", "s1")]
    assert capsys.readouterr().out.splitlines() == [
        "sequencer  2 messages, 1 events numbered",
        "push       2 messages, 1 events pushed to live feeds",
        "fanout     2 messages, 1 events offered to subscriptions",
        "deliveries 2 messages, 1 subscriptions woken",
        "recipients 0 messages, sent to their queue again",
        "broadcasts 1 messages, sent to their queue again",
    ]


def test_a_look_changes_nothing(agent: Agent, queues: dict[str, Any]) -> None:
    agent.events.save(signed())
    queues["sequencer"].send_message(MessageBody=failure(START, START))

    assert run(agent, dry_run=True) == 0

    assert agent.changes.last_number() == 0
    assert left(queues["sequencer"]) == 1


def test_a_message_stays_until_its_events_are_through(agent: Agent, queues: dict[str, Any]) -> None:
    client = Client(agent)
    client.send("REQ", "x", {"kinds": [1], "limit": 0})
    agent.events.save(signed())
    queues["fanout"].send_message(MessageBody=failure(START, START))
    connections_of(agent).error = RuntimeError("API Gateway is down")

    with pytest.raises(RuntimeError):
        run(agent)

    assert left(queues["fanout"]) == 1


@pytest.mark.parametrize("name", ["push", "deliveries"])
@pytest.mark.parametrize("body", ["{}", "no JSON", "[]", '{"DDBStreamBatchInfo": {}}'])
def test_a_message_of_another_form_stays_in_the_queue(
    agent: Agent, queues: dict[str, Any], capsys: pytest.CaptureFixture[str], name: str, body: str
) -> None:
    queues[name].send_message(MessageBody=body)
    assert run(agent) == 1
    assert left(queues[name]) == 1
    assert "1 messages have an unknown form" in capsys.readouterr().out


def test_records_that_are_long_gone_from_the_stream(
    agent: Agent, queues: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing but the tables is needed, and no message either."""
    agent.events.save(signed())
    assert run(agent, unnumbered=True) == 0
    assert capsys.readouterr().out == "sequencer  1 events numbered\n"


def test_a_period_includes_both_its_ends() -> None:
    assert period_of(failure(START, START + 5)) == Period(START, START + 6)


def test_messages_of_a_queue_go_back_to_it(agent: Agent, queues: dict[str, Any]) -> None:
    for number in range(12):
        queues["recipients"].send_message(MessageBody=f"part {number}")

    assert run(agent) == 0

    bodies = set()
    while some := queues["own recipients"].receive_messages(MaxNumberOfMessages=10):
        bodies |= {message.body for message in some}
    assert bodies == {f"part {number}" for number in range(12)}
    assert queues["recipients"].receive_messages() == []


def test_the_deployed_agent_is_what_its_functions_are_told(agent: Agent) -> None:
    asked = []

    def configuration(FunctionName: str) -> dict[str, Any]:
        asked.append(FunctionName)
        variables = {"FARTHING_TABLE_PREFIX": "mine-", "FARTHING_MAX_LIMIT": "7",
                     "FARTHING_CONNECTIONS_URL": "https://x.example/relay",
                     "FARTHING_RECIPIENTS_QUEUE_URL": "https://q.example/mine"}  # fmt: skip
        return {"Environment": {"Variables": variables}}

    client = SimpleNamespace(
        get_function_configuration=configuration,
        get_queue_url=lambda QueueName: {"QueueUrl": f"https://q.example/{QueueName}"},
    )
    made = deployed_agent("mine-", lambda _: client)

    assert asked == ["mine-fanout"]
    assert made.settings.max_limit == 7
    assert made.settings.secret_key == ""
