"""The report counts what was stored and paid, and its page stands alone."""

import json
import re
from datetime import date
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from farthing.store.attributes import marshal_json
from farthing.store.purses import Movement, MovementKind, Way
from farthing.store.receipts import Forwarded, Purpose, PurseFilled, Receipt, Stored
from glue_jobs.charts import axis_steps, short
from glue_jobs.events_source import Format, read_aether_events, read_events
from glue_jobs.relay_report import Report, read_receipts, relay_report
from glue_jobs.report_page import AETHER, FORWARDED, Activity, Page, Payer, Totals, render
from tests.glue.world import NOW, event, key, write_lines
from tests.relay.aether_world import signed as aether_signed

DAY = 24 * 3600
HOSTILE = "<script>alert('x')</script>"


def receipt(
    peer: str, amount: int, *, kind: int = 1, when: int = NOW, purpose: Purpose | None = None
) -> Receipt:
    stored = Stored(key(f"{peer}{amount}"), kind, 100)
    return Receipt(peer, "c" * 64, "f" * 64, "author", amount, amount, when, purpose or stored)


def item_line(pk: str, attributes: dict[str, Any]) -> str:
    return json.dumps({"Item": {"pk": {"S": pk}, "sk": {"S": "s"}, **marshal_json(attributes)}})


EVENTS = [
    event(key("a"), 1, [], content="one", created_at=NOW),
    event(key("a"), 1, [], content="two", created_at=NOW),
    event(key("b"), 1, [], content="three", created_at=NOW - DAY),
    event(key("b"), 7, [], content="+", created_at=NOW),
    event(key("c"), 1, [], content="long ago", created_at=NOW - 90 * DAY),
    event(key("c"), 1, [], content="in the year 292277026596", created_at=2**62),
]
RECEIPTS = [
    receipt("carol", 500),
    receipt("carol", 20, kind=7),
    receipt(HOSTILE, 30, when=NOW - DAY),
    receipt("old", 10**9, when=NOW - 90 * DAY),
    receipt("carol", 1000, purpose=Forwarded("bob", 993, 100)),
]


@pytest.fixture(scope="module")
def report(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Report:
    folder = tmp_path_factory.mktemp("report")
    events = write_lines(folder / "events.jsonl", [*EVENTS, "{ no event"])
    items = [item_line(f"receipt#{each.peer}", each.item()) for each in RECEIPTS]
    items += [item_line("peers", {"id": "x"}), "{ no item"]
    ledger = write_lines(folder / "ledger.json", items)
    return relay_report(
        read_events(spark, [events], Format.JSONL),
        read_receipts(spark, [ledger], Format.DYNAMODB),
        NOW, name=f"Farthing {HOSTILE}", unit="nano <USD>", days=7,
    )  # fmt: skip


def test_figures_are_counted_by_kind_and_day(report: Report) -> None:
    rows = {(row.day, row.kind): row for row in report.activity.collect()}
    today, before = date(2027, 1, 15), date(2027, 1, 14)

    assert set(rows) == {(today, 1), (today, 7), (before, 1), (today, FORWARDED)}
    notes = rows[today, 1]
    assert (notes.events, notes.authors, notes.deliveries, notes.revenue) == (2, 1, 1, 500)
    assert notes.bytes == sum(len(json.dumps(each)) for each in EVENTS[:2])
    onward = rows[today, FORWARDED]
    assert (onward.events, onward.deliveries, onward.forwards, onward.revenue) == (0, 0, 1, 7)
    assert (rows[before, 1].events, rows[before, 1].revenue) == (1, 30)
    assert rows[today, 7].revenue == 20


def test_the_payers_with_most_revenue_come_first(report: Report) -> None:
    rows = [(row.peer, row.packets, row.revenue) for row in report.payers.collect()]

    assert rows == [("carol", 3, 527), (HOSTILE, 1, 30)]


def test_the_figures_are_written_as_parquet(
    report: Report, spark: SparkSession, tmp_path: Path
) -> None:
    report.write_parquet(str(tmp_path))

    assert spark.read.parquet(str(tmp_path / "activity")).count() == 4
    assert spark.read.parquet(str(tmp_path / "payers")).count() == 2


class Reader(HTMLParser):
    """Every tag with its attributes, and the text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_stands_alone_and_escapes_what_others_wrote(report: Report) -> None:
    page = Reader(report.page)

    assert not {tag for tag, _ in page.tags} & {"script", "link", "img", "iframe", "object"}
    assert not re.search(r"https?:|url\(|@import", report.page)
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert HOSTILE in page.text, "as text"


def test_the_page_tells_what_a_person_asks(report: Report) -> None:
    page = Reader(report.page)

    labels = [attributes.get("aria-label") for tag, attributes in page.tags if tag == "svg"]
    assert labels[0] == "Events stored by day: 4 in all, most on 15 Jan with 3"
    assert "Revenue by day: 557 in all, most on 15 Jan with 527" in labels
    assert "Authors by day: 3 in all, most on 15 Jan with 2" in labels
    assert "Deliveries by day: 3 in all, most on 15 Jan with 2" in labels
    for text in (
        "carol",
        "527",
        "nano <USD>",
        "forwarded packets",
        "note (1)",
        "reaction (7)",
        "9 January 2027 to 15 January 2027",
    ):
        assert text in page.text


@pytest.mark.parametrize("form", [Format.JSONL, Format.PARQUET])
def test_receipts_from_lines_and_parquet(spark: SparkSession, tmp_path: Path, form: Format) -> None:
    lines = [json.dumps(each.item()) for each in RECEIPTS]
    path = write_lines(tmp_path / "receipts.jsonl", [*lines, "{ nothing"])
    if form is Format.PARQUET:
        spark.read.json(path).withColumn("pk", F.concat(F.lit("receipt#"), "peer")).write.parquet(
            str(tmp_path / "receipts")
        )
        path = str(tmp_path / "receipts")

    found = [
        (row.peer, row.revenue, row.kind, row.is_forwarded)
        for row in read_receipts(spark, [path], form).collect()
    ]

    assert sorted(found) == sorted(
        (each.peer, 7, FORWARDED, True)
        if isinstance(each.purpose, Forwarded)
        else (each.peer, each.amount, each.purpose.kind, False)
        for each in RECEIPTS
    )


@pytest.mark.parametrize("form", [Format.JSONL, Format.DYNAMODB])
def test_aether_is_counted_apart(spark: SparkSession, tmp_path: Path, form: Format) -> None:
    """In a mixed source, whose kinds mean different things."""
    aether = [
        aether_signed(content=str(number), created_at=(NOW - 60) * 10**9 + number).to_json()
        for number in range(3)
    ]
    nostr = [event(key("a"), 1, [], content="one", created_at=NOW)]
    if form is Format.DYNAMODB:
        lines = [
            json.dumps({"Item": {"pk": {"S": "x"}, "sk": {"S": sk}, "j": {"S": text}}})
            for sk, texts in (("xe", aether), ("e", nostr))
            for text in texts
        ]
    else:
        lines = [*aether, *nostr]
    source = write_lines(tmp_path / "mixed", lines)
    paid = receipt("carol", 70, purpose=Stored("a" * 64, 1, 100, None, "aether"))
    ledger = write_lines(
        tmp_path / "ledger", [json.dumps(each.item()) for each in (receipt("carol", 5), paid)]
    )
    made = relay_report(
        read_events(spark, [source], form), read_receipts(spark, [ledger], Format.JSONL), NOW,
        aether=read_aether_events(spark, [source], form),
    )  # fmt: skip
    rows = {row.kind: (row.events, row.authors, row.revenue) for row in made.activity.collect()}
    assert rows == {1: (1, 1, 5), AETHER: (3, 1, 70)}
    assert "Aether events" in made.page


@pytest.mark.parametrize("form", [Format.JSONL, Format.DYNAMODB])
def test_money_in_purses_is_earned_when_it_is_drawn(
    spark: SparkSession, tmp_path: Path, form: Format
) -> None:
    purse = f"purse#{key('carol')}"
    detail = Stored(key("e"), 7, 100)._asdict()
    filled = receipt("carol", 900, purpose=PurseFilled(key("carol"), 32)).item()
    moved = [
        Movement(MovementKind.DRAWN, Way.EVENT, 330, NOW * 1000, "e", detail),
        Movement(MovementKind.FILLED, Way.PACKET, 900, NOW * 1000, "f"),
        Movement(MovementKind.DRAWN, Way.SUBSCRIPTION, 50, NOW * 1000, "s", {"id": "s"}),
    ]
    items = [("receipt#carol", filled), *((purse, each.item()) for each in moved)]
    lines = [
        item_line(pk, item) if form is Format.DYNAMODB else json.dumps({**item, "pk": pk})
        for pk, item in items
    ]
    path = write_lines(tmp_path / "ledger.jsonl", lines)

    found = [
        (row.peer, row.revenue, row.kind, row.size)
        for row in read_receipts(spark, [path], form).collect()
    ]

    assert found == [(purse, 330, 7, 100)]


def test_a_page_with_nothing_to_tell() -> None:
    totals = Totals(events=0, authors=0, bytes=0, deliveries=0, forwards=0, revenue=0, payers=0)

    page = render(Page("", "units", date(2027, 1, 1), date(2027, 1, 2), totals, [], {}, []))

    assert "Nothing in these days." in page and "Nobody has paid" in page


def test_kinds_without_a_colour_are_shown_together() -> None:
    day = date(2027, 1, 1)
    rows = [Activity(day, kind, 20 - kind, 1, 1, 0, 0, 0) for kind in range(9)]
    totals = Totals(events=1, authors=1, bytes=1, deliveries=0, forwards=0, revenue=0, payers=0)

    page = render(Page("x", "units", day, day, totals, rows, {day: 1}, [Payer("p" * 64, 1, 1, 1)]))

    assert "other kinds: 54" in page and "kind 8" in page  # 14 + 14 + 13 + ... of those left


@pytest.mark.parametrize(
    ("highest", "axis"),
    [
        (0, [0, 1]),
        (1, [0, 1]),
        (7, [0, 2, 4, 6, 8]),
        (25_300, [0, 10_000, 20_000, 30_000]),
        (95, [0, 20, 40, 60, 80, 100]),
        (1001, [0, 500, 1000, 1500]),
    ],
)
def test_axes_end_at_round_numbers(highest: int, axis: list[int]) -> None:
    assert axis_steps(highest) == axis


def test_large_numbers_are_shown_with_three_digits() -> None:
    assert [short(n) for n in (0, 7, 999, 1234, 5_600_000, 10**12)] == [
        "0", "7", "999", "1.23k", "5.6M", "1T",
    ]  # fmt: skip
