"""Stream events have DynamoDB's shape, and come apart into the changes they were made of."""

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farthing.store.attributes import marshal_json, typed, unmarshal, unmarshal_json
from farthing.store.sqlite_outbox import OutboxChange
from farthing.store.streams import Record, StreamChange, parse_record, records_of
from farthing.store.table import STREAMED, Table

ARN = "arn:aws:dynamodb:eu-central-1:123456789012:table/farthing-"

names = st.text(min_size=1, max_size=8).filter(lambda name: name not in ("pk", "sk"))
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**37), 10**37)
    | st.text(max_size=8)
    | st.binary(max_size=8)
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(min_size=1, max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
items = st.dictionaries(names, values, max_size=4)
changes = st.builds(
    OutboxChange,
    sequence=st.integers(1, 2**62),
    table=st.sampled_from(sorted(STREAMED)),
    pk=st.text(min_size=1, max_size=8),
    sk=st.text(min_size=1, max_size=8),
    old=st.none() | items,
    new=st.none() | items,
).filter(lambda change: change.old is not None or change.new is not None)


def test_a_record_is_what_lambda_gets() -> None:
    old, new = {"n": 1}, {"n": 2, "raw": b"\x00\x01", "tags": [["e", "x"], []], "gone": None}
    event = records_of(
        [OutboxChange(17, Table.EVENTS, "p", "s", old, new)], ARN, created=1700000000.7
    )
    assert event == {
        "Records": [
            {
                "eventID": "000000000000000000017",
                "eventName": "MODIFY",
                "eventVersion": "1.1",
                "eventSource": "aws:dynamodb",
                "awsRegion": "eu-central-1",
                "dynamodb": {
                    "ApproximateCreationDateTime": 1700000000,
                    "Keys": {"pk": {"S": "p"}, "sk": {"S": "s"}},
                    "NewImage": {
                        "pk": {"S": "p"},
                        "sk": {"S": "s"},
                        "n": {"N": "2"},
                        "raw": {"B": "AAE="},
                        "tags": {"L": [{"L": [{"S": "e"}, {"S": "x"}]}, {"L": []}]},
                        "gone": {"NULL": True},
                    },
                    "OldImage": {"pk": {"S": "p"}, "sk": {"S": "s"}, "n": {"N": "1"}},
                    "SequenceNumber": "000000000000000000017",
                    "StreamViewType": "NEW_AND_OLD_IMAGES",
                },
                "eventSourceARN": f"{ARN}events/stream/1970-01-01T00:00:00.000",
            }
        ]
    }


def test_names_follow_from_the_images() -> None:
    kinds = [(None, {"a": 1}), ({"a": 1}, {"a": 2}), ({"a": 2}, None), (None, {}), ({}, None)]
    event = records_of([OutboxChange(1, Table.CHANGES, "p", "s", *kind) for kind in kinds], ARN)
    names = [record["eventName"] for record in event["Records"]]
    assert names == ["INSERT", "MODIFY", "REMOVE", "INSERT", "REMOVE"]
    assert "OldImage" not in event["Records"][0]["dynamodb"]
    assert "NewImage" not in event["Records"][2]["dynamodb"]


@given(changes)
def test_records_come_apart_into_their_changes(change: OutboxChange) -> None:
    event = json.loads(json.dumps(records_of([change], ARN)))
    (record,) = event["Records"]
    parsed = parse_record(record)
    assert parsed == StreamChange(
        change.table, change.pk, change.sk, change.old, change.new, parsed.sequence
    )
    assert int(parsed.sequence) == change.sequence


def test_sequence_numbers_sort_as_numbers_do() -> None:
    event = records_of(
        [OutboxChange(n, Table.EVENTS, "p", "s", None, {}) for n in (9, 10, 100)], ARN
    )
    numbers = [parse_record(record).sequence for record in event["Records"]]
    assert numbers == sorted(numbers)


@pytest.mark.parametrize("prefix", ["", "farthing-", "Stack-events-"])
def test_the_table_is_found_behind_any_prefix(prefix: str) -> None:
    arn = f"arn:aws:dynamodb:us-east-1:1:table/{prefix}"
    (record,) = records_of([OutboxChange(1, Table.CHANGES, "p", "s", None, {})], arn)["Records"]
    assert parse_record(record).table is Table.CHANGES


def test_an_unknown_table_is_refused() -> None:
    (made,) = records_of([OutboxChange(1, Table.EVENTS, "p", "s", None, {})], ARN)["Records"]
    record = {**made, "eventSourceARN": made["eventSourceARN"].replace("events", "other")}
    with pytest.raises(ValueError, match="unknown table"):
        parse_record(record)


@given(items)
def test_typed_json_comes_back(item: dict[str, Any]) -> None:
    assert unmarshal_json(json.loads(json.dumps(marshal_json(item)))) == item
    assert unmarshal({name: typed(value) for name, value in item.items()}) == item


def test_handlers_do_not_load_the_engines() -> None:
    loaded = subprocess.run(
        [sys.executable, "-c", "import sys, farthing.store.streams; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    ).stdout.split()
    assert not {"sqlite3", "botocore", "pynamodb", "orjson"} & set(loaded)


def test_a_record_handed_over_is_the_same_when_looked_at() -> None:
    change = OutboxChange(17, Table.EVENTS, "p", "s", {"a": 1}, {"a": 2, "b": b"x"})
    (expected,) = records_of([change], ARN, created=5.5)["Records"]
    record = Record(change, ARN, 5.5)
    assert parse_record(record) == parse_record(json.loads(json.dumps(expected)))
    assert record["dynamodb"]["SequenceNumber"] == expected["dynamodb"]["SequenceNumber"]
    assert record == expected
    with pytest.raises(KeyError):
        record["other"]
