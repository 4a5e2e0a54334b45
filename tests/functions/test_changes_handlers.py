"""The changes feed's three handlers with their sample payloads: CHANGES, sequencer and push."""

import json
from dataclasses import replace
from typing import Any

import pytest

from farthing.context import Agent
from farthing.handlers import runtime
from farthing.nostr.events import parse_event
from farthing.store.table import StoreError
from tests.functions.conftest import Invoke, sample
from tests.relay.world import connections_of
from tests.store.faulty import Fault, FaultyEngine, nth

CONNECTION = sample("changes")["requestContext"]["connectionId"]
FINE: dict[str, Any] = {"batchItemFailures": []}


def new_images(name: str) -> list[dict[str, Any]]:
    """The events that a batch brings."""
    images = [record["dynamodb"].get("NewImage", {}) for record in sample(name)["Records"]]
    return [json.loads(image["j"]["S"]) for image in images if "j" in image]


NOTE, PROFILE = new_images("sequencer")


def sequence_of(record: dict[str, Any]) -> dict[str, str]:
    return {"itemIdentifier": record["dynamodb"]["SequenceNumber"]}


def numbered(agent: Agent) -> list[str]:
    return [entry.id for entry in agent.changes.between(0, agent.changes.last_number())]


def record_of_chunk(first: int, ids: list[str]) -> dict[str, Any]:
    """As the sample's, for another commit."""
    (record,) = sample("push")["Records"]
    entries = "".join(f"{id}{NOTE['pubkey']}0001" for id in ids)
    key = {"pk": {"S": "log#0"}, "sk": {"S": f"{first:015d}"}}
    record["dynamodb"] |= {
        "Keys": key,
        "NewImage": {**key, "e": {"S": entries}},
        "SequenceNumber": f"{first:040d}",
    }
    return record


class TestSequencer:
    def test_new_events_get_their_numbers(self, agent: Agent, invoke: Invoke) -> None:
        assert invoke("sequencer") == FINE

        # The note and the new profile; not addresses, what was replaced, or a tombstone.
        assert numbered(agent) == [NOTE["id"], PROFILE["id"]]

    def test_repeated_records_are_numbered_once(self, agent: Agent, invoke: Invoke) -> None:
        records = sample("sequencer")["Records"]
        invoke("sequencer", {"Records": records[2:]})

        assert invoke("sequencer", {"Records": [*records, *records[::-1]]}) == FINE
        assert invoke("sequencer") == FINE

        assert numbered(agent) == [PROFILE["id"], NOTE["id"]]

    def test_a_bad_record_is_reported_and_those_before_it_are_numbered(
        self, agent: Agent, invoke: Invoke
    ) -> None:
        event = sample("sequencer")
        broken = event["Records"][2]
        del broken["dynamodb"]["NewImage"]["p"]

        assert invoke("sequencer", event) == {"batchItemFailures": [sequence_of(broken)]}

        assert numbered(agent) == [NOTE["id"]]

    @pytest.mark.parametrize("after", [False, True])
    def test_a_store_that_does_not_answer(self, agent: Agent, invoke: Invoke, after: bool) -> None:
        """The batch fails, and then the first record alone: Lambda sends both again."""
        plan = nth(0, ["transact"], Fault(StoreError, after=after))
        engine = FaultyEngine(agent.engine, plan)
        runtime.install(replace(agent, engine=engine))
        assert invoke("sequencer") == FINE  # one by one it went well
        engine.plan = lambda _, name: Fault(StoreError) if name == "get" else None

        with pytest.raises(StoreError):
            invoke("sequencer")

        assert numbered(agent) == [NOTE["id"], PROFILE["id"]]

    def test_an_empty_batch_has_no_failures(self, invoke: Invoke) -> None:
        assert invoke("sequencer", {"Records": []}) == FINE


class TestChangesAndPush:
    @pytest.fixture(autouse=True)
    def stored(self, agent: Agent) -> None:
        agent.sessions.connect(CONNECTION, "", "relay.example", agent.now)
        for each in (NOTE, PROFILE):
            agent.events.save(parse_event(each))

    def frames(self, agent: Agent) -> list[Any]:
        return connections_of(agent).take(CONNECTION)

    def test_changes_answers_and_stays(self, agent: Agent, invoke: Invoke) -> None:
        invoke("sequencer")

        assert invoke("changes") == {"statusCode": 200}

        assert self.frames(agent) == [
            ["CHANGES", "sync", "EVENT", 1, NOTE],
            ["CHANGES", "sync", "EVENT", 2, PROFILE],
            ["CHANGES", "sync", "EOSE", 2],
        ]
        assert agent.subscriptions.ids(CONNECTION) == {"sync"}

    def test_not_live_ends_with_the_response(self, agent: Agent, invoke: Invoke) -> None:
        event = sample("changes")
        event["body"] = '["CHANGES","once",{}]'

        response = invoke("changes", event)

        assert json.loads(response["body"]) == ["CHANGES", "once", "EOSE", 0]

    def test_the_default_route_serves_it_too(self, agent: Agent, invoke: Invoke) -> None:
        invoke("default", sample("changes"))

        assert self.frames(agent) == [["CHANGES", "sync", "EOSE", 0]]

    def test_push_brings_what_the_sequencer_numbered(self, agent: Agent, invoke: Invoke) -> None:
        invoke("changes")
        invoke("sequencer")
        self.frames(agent)

        assert invoke("push") == FINE
        assert invoke("push") == FINE  # a record comes at least once

        assert self.frames(agent) == [
            ["CHANGES", "sync", "EVENT", 1, NOTE],
            ["CHANGES", "sync", "EVENT", 2, PROFILE],
        ]

    def test_what_cannot_be_posted_is_tried_again(self, agent: Agent, invoke: Invoke) -> None:
        invoke("changes")
        invoke("sequencer")
        self.frames(agent)
        connections_of(agent).error = RuntimeError("gateway down")
        with pytest.raises(ExceptionGroup):
            invoke("push")

        connections_of(agent).error = None
        assert invoke("push") == FINE

        assert [frame[3] for frame in self.frames(agent)] == [1, 2]

    def test_those_before_a_bad_record_are_not_reported(self, agent: Agent, invoke: Invoke) -> None:
        invoke("changes")
        invoke("sequencer")
        self.frames(agent)
        broken = record_of_chunk(3, [NOTE["id"]])
        broken["dynamodb"]["NewImage"]["e"] = {"N": "1"}

        response = invoke("push", {"Records": [*sample("push")["Records"], broken]})

        assert response == {"batchItemFailures": [sequence_of(broken)]}
        assert [frame[3] for frame in self.frames(agent)] == [1, 2]

    def test_entries_whose_events_are_gone(self, agent: Agent, invoke: Invoke) -> None:
        invoke("changes")
        self.frames(agent)

        assert invoke("push", {"Records": [record_of_chunk(1, ["f" * 64])]}) == FINE

        assert self.frames(agent) == []


def test_other_items_of_the_table_are_none_of_its_business(invoke: Invoke) -> None:
    """The mapping's filter keeps them away; one that came through would do no harm."""
    (record,) = sample("push")["Records"]
    record["dynamodb"]["Keys"] = {"pk": {"S": "counter"}, "sk": {"S": "counter"}}

    assert invoke("push", {"Records": [record]}) == FINE
