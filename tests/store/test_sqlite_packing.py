"""Packed keys and items: what comes out is what went in, and keys keep their order."""

import random
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farthing.store.events import event_item
from farthing.store.postings import PostingRows, postings_in
from farthing.store.sqlite import SqliteEngine
from farthing.store.sqlite_packing import (
    PACKED,
    pack_bound,
    pack_item,
    pack_key,
    unpack_item,
    unpack_partition,
)
from farthing.store.sqlite_postings import posting_rows
from farthing.store.table import Item, Put, Query, Table
from tests.relay.world import made

EVENTS, POSTINGS, CHANGES = Table.EVENTS, Table.POSTINGS, Table.CHANGES

hex_digits = st.text("0123456789abcdef", min_size=80, max_size=80)
# Like sort keys up to somewhere, and then anything: also what lies between 9 and a, and above f.
near_hex = st.builds(
    lambda digits, cut, rest: digits[:cut] + rest,
    hex_digits,
    st.integers(0, 80),
    st.text("/09:@AF`afg~\u00e9", max_size=3),
)


@settings(max_examples=500)
@given(st.one_of(near_hex, hex_digits, st.text(max_size=90)), st.data())
def test_a_bound_divides_packed_keys_as_it_divides_keys(bound: str, data: st.DataObject) -> None:
    some = [data.draw(hex_digits) for _ in range(3)]
    stem = "".join(each for each in bound if each in "0123456789abcdef")
    some += [stem[:cut].ljust(80, fill)[:80] for cut, fill in product((0, len(stem)), "09af")]
    digits = next((at for at, each in enumerate(bound) if each not in "0123456789abcdef"), 80)
    some += [(bound[:digits] + fill).ljust(80, fill)[:80] for fill in "09af"]
    for key in some:
        packed, place = bytes.fromhex(key), pack_bound(bound)
        assert (packed >= place, packed > place) == (key >= bound, key > bound), key


@pytest.mark.parametrize("end", ["", "0", "5", "a", ":", "0:"])
@pytest.mark.parametrize("digits", [77, 78, 79])
def test_a_bound_of_nearly_all_digits_is_no_key(digits: int, end: str) -> None:
    bound = "3" * digits + end
    places = {"3" * digits + rest for rest in ("000", "0a0", "500", "9ff", "a00", "fff")}
    places |= {"3" * (digits - 1) + rest for rest in ("2fff", "4000")}
    for key in (place[:80] for place in places):
        packed, place = bytes.fromhex(key), pack_bound(bound)
        assert (packed >= place, packed > place) == (key >= bound, key > bound), key


EVENT = made(tags=[["e", "1"], ["t", 'quote " and \\ and ü']])
PLAIN = dict(event_item(EVENT, 5))
UPPER = {**PLAIN, "j": PLAIN["j"].replace("0" * 128, "A" * 128)}
POSTING = {"k": 1, "p": "ab" * 32, "w": 5}
ITEMS: list[tuple[Table, str, dict[str, Any]]] = [
    (EVENTS, EVENT.id, PLAIN),
    (EVENTS, EVENT.id, {**PLAIN, "r": "paid", "expires": 7}),
    (EVENTS, EVENT.id, {**PLAIN, "$odd": b"octets"}),
    (EVENTS, "f" * 64, PLAIN),
    (EVENTS, EVENT.id, UPPER),
    (EVENTS, EVENT.id, {**PLAIN, "j": PLAIN["j"] + " "}),
    (EVENTS, EVENT.id, {**PLAIN, "p": "A" * 64}),
    (EVENTS, EVENT.id, {**PLAIN, "w": True}),
    (EVENTS, EVENT.id, {**PLAIN, "w": -1}),
    (EVENTS, EVENT.id, {**PLAIN, "k": 2**16}),
    (EVENTS, EVENT.id, {**PLAIN, "c": 2**64}),
    (EVENTS, EVENT.id, {"j": ["{}"], "p": 1, "k": 1, "c": 1, "w": 1}),
    (EVENTS, EVENT.id, {"j": "{}"}),
    (EVENTS, EVENT.id, {"by": ["a" * 64]}),
    (POSTINGS, "a#", POSTING),
    (POSTINGS, "a#", {**POSTING, "expires": 7}),
    (POSTINGS, "a#", {**POSTING, "expires": 2**64}),
    (POSTINGS, "a#", {**POSTING, "expires": "7"}),
    (POSTINGS, "a#", {**POSTING, "x": 7}),
    (POSTINGS, "a#", {**POSTING, "k": False}),
    (POSTINGS, "a#", {**POSTING, "p": "ab" * 31}),
    (POSTINGS, "a#", {**POSTING, "p": "Ab" * 32}),
    (POSTINGS, "a#", {**POSTING, "p": ["ab"]}),
    (POSTINGS, "a#", {**POSTING, "w": 2**32}),
    (POSTINGS, "a#", {}),
    (CHANGES, "by#" + "a" * 64, {"i": "ab" * 32, "k": 1}),
    (CHANGES, "by#" + "a" * 64, {"i": "ab" * 31, "k": 1}),
    (CHANGES, "by#" + "a" * 64, {"i": "ab" * 32, "k": True}),
    (CHANGES, "by#" + "a" * 64, {"i": "ab" * 32, "k": 2**16}),
    (CHANGES, "log#0", {"e": "ab" * 66}),
    (CHANGES, "log#0", {"e": "AB" * 66}),
    (CHANGES, "log#0", {"e": "ab "}),
    (CHANGES, "log#0", {"e": ""}),
    (CHANGES, "log#0", {"e": 7}),
    (CHANGES, "id#" + "a" * 64, {"n": 7}),
    (Table.LEDGER, "p", POSTING),
]


@pytest.mark.parametrize(("table", "pk", "item"), ITEMS)
def test_an_item_comes_back_as_it_was(table: Table, pk: str, item: dict[str, Any]) -> None:
    again = unpack_item(pk, pack_item(table, pk, item))
    assert again == item
    assert {name: type(again[name]) for name in again} == {name: type(item[name]) for name in item}


def test_most_items_take_less_room() -> None:
    posting, entry, chunk = (len(pack_item(*ITEMS[number])) for number in (14, 25, 29))
    assert (posting, entry, chunk) == (39, 35, 67)
    assert len(pack_item(EVENTS, EVENT.id, PLAIN)) < len(PLAIN["j"]) - 170


@pytest.mark.parametrize("table", sorted(PACKED - {POSTINGS}))
@pytest.mark.parametrize(
    "pk", ["p", "a" * 64, "A" * 64, "id#" + "0" * 64, "by#" + "f" * 64, "by#" + "F" * 64, "id#1"]
)
def test_a_partition_comes_back_as_it_was(table: Table, pk: str) -> None:
    assert unpack_partition(table, pack_key(table, pk, "e")[0]) == pk


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("limit", [None, 1, 3])
def test_lists_with_sort_keys_of_any_form(
    tmp_path: Path, backward: bool, limit: int | None
) -> None:
    """Packed and plain ones, in the order of the keys."""
    engine = SqliteEngine(tmp_path)
    keys = [f"{number:080x}" for number in range(0, 2**320, 2**320 // 5)] + [
        "0",
        "5",
        "a",
        "zz",
        "F",
    ]
    random.Random(1).shuffle(keys)
    for sk in keys:
        engine.write(Put(POSTINGS, "a#1", sk, POSTING))
    expected = sorted(keys, reverse=backward)
    for bounds in [(None, None), ("3", None), (None, "b"), ("3", "~"), (keys[0], keys[1])]:
        low, high = bounds
        wanted = [
            sk for sk in expected if (low is None or sk >= low) and (high is None or sk <= high)
        ]
        found: list[str] = []
        after = None
        while True:
            query = Query(POSTINGS, "a#1", low, high, backward, limit, after)
            page = engine.query(query)
            assert engine.query_many([query] * 3) == [page] * 3
            found += [row.sk for row in page.rows]
            after = page.after
            if after is None:
                break
        assert found == wanted, bounds
    engine.close()


numbers = st.integers(0, 2**32 - 1)
plain_postings = st.builds(
    lambda kind, author, written: {"k": kind, "p": author, "w": written},
    st.integers(0, 65535), st.text("0123456789abcdef", min_size=64, max_size=64), numbers,
)  # fmt: skip
unusual_postings = st.builds(
    lambda item, more: {**item, **more},
    plain_postings, st.sampled_from([{"expires": 2000}, {"w": 2**40}, {"p": "someone"}, {"x": 1}]),
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.lists(plain_postings, max_size=20), st.lists(unusual_postings, max_size=2))
def test_columns_are_those_of_the_rows(plain: list[Item], unusual: list[Item]) -> None:
    items = [*plain, *unusual]
    sort_keys = [f"{number:080x}" for number in range(len(items))]
    rows = posting_rows(sort_keys, [pack_item(POSTINGS, "list", item) for item in items])

    assert isinstance(rows, PostingRows) == (bool(plain) and not unusual)
    assert [(row.sk, row.item) for row in rows] == list(zip(sort_keys, items, strict=True))
    assert list(rows[1:]) == list(rows)[1:]
    found = postings_in(rows)
    assert list(found.sort_keys) == sort_keys
    assert list(zip(found.kinds, found.pubkeys, found.written, strict=True)) == [
        (item["k"], item["p"], item["w"]) for item in items
    ]
    assert found.select(number % 2 for number in range(len(items))) == (
        postings_in(list(rows)[1::2])
    )
