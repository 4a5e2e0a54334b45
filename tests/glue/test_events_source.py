"""The same events from a DynamoDB export, from JSON lines and from Parquet; and what is none."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from farthing.nostr.events import parse_event
from farthing.store.attributes import marshal_json
from farthing.store.events import event_item
from glue_jobs.events_source import Format, newest_by_author, read_events, well_formed
from glue_jobs.graph import claims, routing_events
from tests.glue.world import NOW, Event, claim, event, follows, key, options, write_lines

A, B = key("a"), key("b")
EVENTS = [
    follows(A, [B]),
    claim(B, "g.agent.b", 3),
    event(B, 1, [["t", "ünïcode \u2028 \r"]], content='line\n"quoted" \\ 🪙'),
]
MALFORMED = [
    "{", "null", "[]", "7", '"text"', "\x00\x01", "{}", '{"id": 1}', "[" * 500,
    json.dumps({**EVENTS[0], "pubkey": A.upper()}), json.dumps({**EVENTS[0], "pubkey": A + "\n"}),
    json.dumps({**EVENTS[0], "created_at": "yesterday"}), json.dumps({**EVENTS[0], "tags": 5}),
    json.dumps({**EVENTS[0], "created_at": -1}), json.dumps({**EVENTS[0], "kind": 10**12}),
    json.dumps({**EVENTS[0], "created_at": 10**40}), json.dumps({**EVENTS[0], "kind": None}),
]  # fmt: skip


def found(events: DataFrame) -> list[dict[str, Any]]:
    columns = ["id", "pubkey", "created_at", "kind", "tags", "content"]
    return [row.asDict() for row in well_formed(events).select(columns).orderBy("id").collect()]


def expected() -> list[Event]:
    events = [{name: value for name, value in each.items() if name != "sig"} for each in EVENTS]
    return sorted(events, key=lambda each: each["id"])


def item_line(attributes: dict[str, Any]) -> str:
    return json.dumps({"Item": attributes})


def exported(raw: Event) -> str:
    """As the events table keeps it and DynamoDB exports it."""
    item = marshal_json(event_item(parse_event(raw), NOW))
    return item_line({"pk": {"S": raw["id"]}, "sk": {"S": "e"}, **item})


def counts(events: DataFrame) -> tuple[int, int]:
    row = events.agg(
        F.count_if("malformed").alias("bad"), F.count_if(~F.col("malformed")).alias("good")
    )
    return row.first()["good"], row.first()["bad"]


def test_events_are_read_from_json_lines(spark: SparkSession, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "events.jsonl", [*EVENTS, "", "  "])

    assert found(read_events(spark, [path], Format.JSONL)) == expected()


def test_events_are_read_from_a_dynamodb_export(spark: SparkSession, tmp_path: Path) -> None:
    tombstone = {"pk": {"S": key("gone")}, "sk": {"S": "e"}, "deleters": {"L": [{"S": A}]}}
    address = {"pk": {"S": f"a#3:{A}:"}, "sk": {"S": "a"}, "id": {"S": key("x")}}
    lines = [*map(exported, EVENTS), item_line(tombstone), item_line(address)]
    bad = [
        "{",
        "{}",
        '{"Item": 7}',
        item_line({"pk": {"S": "x"}, "sk": {"S": "e"}, "j": {"S": "?"}}),
    ]
    for number, part in enumerate((lines, bad)):
        with gzip.open(tmp_path / f"{number}.json.gz", "wt") as file:
            file.write("\n".join(part) + "\n")

    events = read_events(spark, [str(tmp_path)], Format.DYNAMODB)

    assert found(events) == expected()
    assert counts(events) == (len(EVENTS), len(bad))


@pytest.mark.parametrize("tags_as", ["arrays", "text"])
def test_events_are_read_from_parquet(spark: SparkSession, tmp_path: Path, tags_as: str) -> None:
    lines = write_lines(tmp_path / "events.jsonl", EVENTS)
    columns = read_events(spark, [lines], Format.JSONL).drop("size", "malformed")
    if tags_as == "text":
        columns = columns.withColumn("tags", F.to_json("tags")).withColumn(
            "kind", F.col("kind") + F.lit(0).cast("bigint")
        )
    columns.write.parquet(str(tmp_path / "parquet"))

    events = read_events(spark, [str(tmp_path / "parquet")], Format.PARQUET)

    assert found(events) == expected()
    assert counts(events) == (len(EVENTS), 0)


def test_malformed_lines_are_counted_and_never_fatal(spark: SparkSession, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "events.jsonl", [*MALFORMED, *EVENTS])

    events = read_events(spark, [path], Format.JSONL)

    assert counts(events) == (len(EVENTS), len(MALFORMED))
    assert found(events) == expected()


def test_parquet_without_the_columns_of_events_is_malformed_throughout(
    spark: SparkSession, tmp_path: Path
) -> None:
    spark.range(3).selectExpr("id", "array(id) AS tags").write.parquet(str(tmp_path / "other"))

    assert counts(read_events(spark, [str(tmp_path / "other")], Format.PARQUET)) == (0, 3)


def test_the_newest_of_each_author_and_kind_stays_and_of_equals_the_lowest_id(
    spark: SparkSession, tmp_path: Path
) -> None:
    equals = sorted((follows(A, [key(str(n))]) for n in range(5)), key=lambda each: each["id"])
    older = [follows(A, [B], created_at=1), claim(A, "g.agent.old", created_at=5)]
    newer = claim(A, "g.agent.new", created_at=6)
    path = write_lines(tmp_path / "events.jsonl", [*older, newer, *equals[::-1], newer])

    newest = newest_by_author(well_formed(read_events(spark, [path], Format.JSONL)))

    assert {row.id for row in newest.collect()} == {equals[0]["id"], newer["id"]}


def test_claims_are_read_from_tags_and_from_content(spark: SparkSession, tmp_path: Path) -> None:
    in_content = json.dumps({"ilpAddress": "g.agent.json", "btpEndpoint": "", "assetScale": 9})
    told = {
        "tag": claim(key("tag"), "g.agent.tag", 12),
        "content": event(key("content"), 10032, [], content=in_content),
        "both": event(key("both"), 10032, [["ilp_address", "g.agent.tag2"]], content=in_content),
        "neither": event(key("neither"), 10032, [], content="not JSON"),
        "dear": claim(key("dear"), "g.agent.dear", 10**9),
    }
    path = write_lines(tmp_path / "events.jsonl", told.values())
    events = well_formed(read_events(spark, [path], Format.JSONL))

    rows = claims(newest_by_author(routing_events(events)), options()).collect()

    found = {row.pubkey.hex(): (row.address, row.fee, row.refused is None) for row in rows}
    assert {name: found[key(name)] for name in told} == {
        "tag": ("g.agent.tag", 12, True),
        "content": ("g.agent.json", 0, True),
        "both": ("g.agent.tag2", 0, True),
        "neither": (None, 0, False),
        "dear": ("g.agent.dear", None, True),
    }
