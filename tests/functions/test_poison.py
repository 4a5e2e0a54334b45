"""A record that no handler can take, in a stream as Lambda reads it: whatever stands before and
behind it is handled, and it alone ends in the failure queue."""

import copy
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from farthing.context import Agent
from farthing.nostr.filters import Filter
from farthing.store.subscriptions import Subscription
from tests.e2e.authors import Author
from tests.functions.conftest import Invoke, sample
from tests.relay.world import connections_of

Record = dict[str, Any]
_ATTEMPTS = 3  # at a single record; Lambda's are bounded by its age


def read_stream(
    handle: Callable[[Sequence[Record]], dict[str, Any]], records: Sequence[Record]
) -> list[Record]:
    """An event source with `BisectBatchOnFunctionError` and `ReportBatchItemFailures`, by AWS's
    description of it; what it gives up on."""
    batches, given_up, attempts = [list(records)], [], 0
    while batches:
        batch = batches.pop(0)
        try:
            failures = handle(batch)["batchItemFailures"]
        except Exception:
            attempts += 1
            if len(batch) > 1:  # halved as often as need be: that is no attempt
                half, attempts = len(batch) // 2, 0
                batches[:0] = [batch[:half], batch[half:]]
            elif attempts < _ATTEMPTS:
                batches.insert(0, batch)
            else:
                given_up, attempts = [*given_up, *batch], 0
            continue
        attempts = 0
        if failures:
            numbers = [each["dynamodb"]["SequenceNumber"] for each in batch]
            first = min(numbers.index(each["itemIdentifier"]) for each in failures)
            assert first > 0, "nothing is gained: Lambda would send the same batch again"
            batches.insert(0, batch[first:])
    return given_up


def record_of(event: dict[str, Any], number: int) -> Record:
    (record, *_) = copy.deepcopy(sample("sequencer")["Records"])
    key = {"pk": {"S": event["id"]}, "sk": {"S": "e"}}
    record["dynamodb"] |= {
        "Keys": key,
        "NewImage": {
            **key, "j": {"S": json.dumps(event)}, "p": {"S": event["pubkey"]},
            "k": {"N": str(event["kind"])}, "c": {"N": str(event["created_at"])},
        },
        "SequenceNumber": f"{number:040d}",
    }  # fmt: skip
    return record


def poisoned(record: Record) -> Record:
    """It claims to be an event, and is none."""
    record["dynamodb"]["NewImage"] = {
        **record["dynamodb"]["Keys"],
        "j": {"S": "not an event"},
    }
    return record


@pytest.mark.parametrize("bad", [{0}, {4}, {8}, {3, 4}, {0, 8}, {0, 1, 2}, set()])
@pytest.mark.parametrize("reader", ["sequencer", "fanout"])
def test_only_the_poison_is_given_up(
    agent: Agent, invoke: Invoke, reader: str, bad: set[int]
) -> None:
    author = Author()
    events = [author.event(created_at=agent.now) for _ in range(9)]
    records = [record_of(event, number) for number, event in enumerate(events)]
    for number in bad:
        poisoned(records[number])
    good = [event["id"] for number, event in enumerate(events) if number not in bad]
    agent.subscriptions.subscribe(Subscription("reader", "all", 0, [Filter()]), agent.now)

    given_up = read_stream(lambda batch: invoke(reader, {"Records": list(batch)}), records)

    assert given_up == [records[number] for number in sorted(bad)]
    assert _handled(agent, reader) == good


def _handled(agent: Agent, reader: str) -> list[str]:
    """Numbered each once and in order, or delivered: that may happen more than once."""
    if reader == "sequencer":
        return [entry.id for entry in agent.changes.between(0, agent.changes.last_number())]
    posted = connections_of(agent).posted
    return list(dict.fromkeys(frame[2]["id"] for _, frame in posted))
