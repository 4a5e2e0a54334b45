"""REQ and COUNT over stored events: order, limits, and every kind of filter."""

import time

import pytest

from tests.e2e.authors import Author, newest_first
from tests.e2e.client import RawClient

NOW = int(time.time())


def test_newest_first_and_the_lowest_id_first_among_equals(client: RawClient, author: Author):
    events = [author.event(created_at=NOW - number // 4) for number in range(24)]
    client.store(*events)

    for filter in (
        {"authors": [author.pubkey]},
        {"authors": [author.pubkey], "kinds": [1]},
        {"ids": [event["id"] for event in events]},
    ):
        assert client.ids(filter) == newest_first(events)
        assert client.ids({**filter, "limit": 6}) == newest_first(events)[:6]


def test_what_comes_back_is_what_was_sent(client: RawClient, author: Author):
    event = author.event(
        'quote " backslash \\ newline \n tab \t bell \b\f \x01 \x7f ü 漢 🎩',
        tags=[["t", "ü"], [], [""], ["e"], ["emoji", "🎩", "\u0000"]],
    )
    client.store(event)
    assert client.ask({"ids": [event["id"]]}) == [event]


def test_a_limit_of_zero_returns_nothing_and_goes_live(client: RawClient, connect, author: Author):
    client.store(author.event())
    assert client.request("live", {"authors": [author.pubkey], "limit": 0}) == []

    later = author.event()
    connect().store(later)
    assert client.wait_for("EVENT", "live")[2] == later


def test_each_filter_has_its_own_limit_and_no_event_comes_twice(client: RawClient, author: Author):
    notes = [author.event(created_at=NOW - number) for number in range(10)]
    reactions = [author.event(kind=7, created_at=NOW - number) for number in range(10)]
    client.store(*notes, *reactions)

    mine = {"authors": [author.pubkey]}
    got = client.ids(
        {**mine, "kinds": [1], "limit": 3},
        {**mine, "kinds": [7], "limit": 2},
        {**mine, "kinds": [1], "limit": 5},
        {"ids": [notes[0]["id"], notes[9]["id"]]},
    )
    assert got == newest_first([*notes[:5], notes[9], *reactions[:2]])


def test_since_and_until_include_their_edges(client: RawClient, author: Author):
    events = [author.event(created_at=NOW - number) for number in range(5)]
    client.store(*events)
    mine = {"authors": [author.pubkey]}

    assert client.ids({**mine, "since": NOW - 1}) == newest_first(events[:2])
    assert client.ids({**mine, "until": NOW - 3}) == newest_first(events[3:])
    assert client.ids({**mine, "since": NOW - 2, "until": NOW - 2}) == [events[2]["id"]]
    assert client.ids({**mine, "since": NOW - 1, "until": NOW - 2}) == []
    assert client.ids({**mine, "since": 0, "until": 2**63}) == newest_first(events)


def test_values_of_a_tag_are_alternatives_and_tags_are_demands(client: RawClient, author: Author):
    def tagged(**tags: str) -> dict:
        return author.event(tags=[[name, value] for name, value in tags.items()])

    mark = author.pubkey[:12]
    one, two = tagged(t=f"{mark}-1", r="x"), tagged(t=f"{mark}-2", r="x")
    other = tagged(t=f"{mark}-2", r="y")
    upper = tagged(T=f"{mark}-1")
    client.store(one, two, other, upper)

    both = [f"{mark}-1", f"{mark}-2"]
    assert set(client.ids({"#t": both})) == {one["id"], two["id"], other["id"]}
    assert set(client.ids({"#t": both, "#r": ["x"]})) == {one["id"], two["id"]}
    assert client.ids({"#t": [both[1]], "#r": ["y", "z"]}) == [other["id"]]
    assert client.ids({"#T": both}) == [upper["id"]]
    assert client.ids({"#t": both, "#r": ["z"]}) == []
    assert client.ids({"#t": []}) == []


def test_only_the_first_value_of_a_tag_is_looked_for(client: RawClient, author: Author):
    mark = author.pubkey
    event = author.event(tags=[["t", mark, "second"], ["long", mark]])
    client.store(event)

    assert client.ids({"#t": [mark]}) == [event["id"]]
    assert client.ids({"#t": ["second"], "authors": [mark]}) == []


@pytest.mark.parametrize("value", ["", "a\u0000b", "x" * 5000, "ü" * 200, "#=~:", "🎩"])
def test_any_text_may_be_a_tags_value(client: RawClient, author: Author, value: str):
    event = author.event(tags=[["x", value]])
    near = author.event(tags=[["x", value + "x"]])
    client.store(event, near)
    assert client.ids({"#x": [value], "authors": [author.pubkey]}) == [event["id"]]
    assert event["id"] in client.ids({"#x": [value]})


def test_an_event_is_found_by_each_of_its_many_tags(client: RawClient, author: Author):
    tags = [["t", f"{author.pubkey[:8]}{number}"] for number in range(2000)]
    event = author.event(tags=tags)
    client.store(event)
    assert client.ids({"#t": [tags[0][1]]}) == client.ids({"#t": [tags[-1][1]]}) == [event["id"]]


def test_many_authors_and_kinds_in_one_filter(client: RawClient):
    authors = [Author() for _ in range(40)]
    events = [author.event(kind=kind) for author in authors for kind in (1, 7)]
    client.store(*events)
    keys = [author.pubkey for author in authors]
    assert client.ids({"authors": keys, "kinds": [1, 7, 6]}) == newest_first(events)
    kinds = [1, *range(100, 110)]  # too many pairs for one list each
    assert client.ids({"authors": keys, "kinds": kinds}) == newest_first(
        [event for event in events if event["kind"] == 1]
    )


@pytest.mark.parametrize(
    "filter",
    [
        {"language": "x"},
        {"#tt": ["x"]},
        {"#": ["x"]},
        {"&t": ["x"]},
        {"ids": ["abc"]},
        {"ids": ["A" * 64]},
        {"ids": "a" * 64},
        {"authors": [7]},
        {"#e": ["not an id"]},
        {"kinds": ["1"]},
        {"kinds": [True]},
        {"kinds": [1.5]},
        {"kinds": [70000]},
        {"since": -1},
        {"until": "now"},
        {"limit": None},
        {"limit": -1},
        {"#t": [None]},
        [],
        None,
        "filter",
    ],
)
def test_a_filter_that_makes_no_sense_is_closed_as_invalid(client: RawClient, filter: object):
    assert client.refusal("REQ", "wrong", filter).startswith("invalid: ")
    assert client.refusal("COUNT", "wrong", filter).startswith("invalid: ")


def test_too_many_filters_are_refused(client: RawClient):
    fine = {"ids": ["0" * 64]}
    assert client.ask(*[fine] * 20) == []
    assert client.refusal("REQ", "many", *[fine] * 21).startswith("invalid: expected at most 20")
    assert client.refusal("COUNT", "many", *[fine] * 21).startswith("invalid: expected at most 20")


def test_too_many_values_are_refused(client: RawClient):
    ids = [f"{number:064x}" for number in range(1001)]
    reason = client.refusal("REQ", "many", {"ids": ids, "kinds": list(range(1000))})
    assert reason.startswith("invalid: expected at most 2000")


def test_count_counts_each_matching_event_once(client: RawClient, author: Author):
    mine = {"authors": [author.pubkey]}
    assert client.count(mine) == {"count": 0}
    notes = [author.event(tags=[["t", author.pubkey]]) for _ in range(30)]
    client.store(*notes, *(author.event(kind=7) for _ in range(5)))

    assert client.count(mine) == {"count": 35}
    assert client.count({**mine, "limit": 3}) == {"count": 35}
    assert client.count({**mine, "kinds": [7]}) == {"count": 5}
    assert client.count({"#t": [author.pubkey]}) == {"count": 30}
    # Filters that overlap: no event counts twice.
    assert client.count(mine, {**mine, "kinds": [7]}, {"ids": [notes[0]["id"]]}) == {"count": 35}


def test_count_is_marked_where_it_is_not_exact(start_relay, connect):
    relay = start_relay(price_per_byte=0, count_exactly=10)
    client, author = connect(relay), Author()
    client.store(*(author.event() for _ in range(10)))
    assert client.count({"authors": [author.pubkey]}) == {"count": 10}
    client.store(author.event())
    assert client.count({"authors": [author.pubkey]}) == {"count": 11, "approximate": True}


def test_a_limit_larger_than_ours_is_cut_and_none_is_the_default(start_relay, connect):
    relay = start_relay(price_per_byte=0, max_limit=7, default_limit=4)
    client, author = connect(relay), Author()
    events = [author.event(created_at=NOW - number) for number in range(10)]
    client.store(*events)
    assert client.ids({"kinds": [1]}) == newest_first(events)[:4]
    assert client.ids({"kinds": [1], "limit": 1000}) == newest_first(events)[:7]
    assert len(client.ids({})) == 4


def test_a_filter_that_would_read_too_much_is_closed(start_relay, connect):
    relay = start_relay(price_per_byte=0, max_scan=20)
    client, author = connect(relay), Author()
    client.store(*(author.event(kind=1) for _ in range(30)))
    wanted = {"authors": [author.pubkey], "#t": ["never"], "limit": 5}
    assert client.refusal("REQ", "broad", wanted).startswith("error: ")
    # And it is not live either.
    assert client.request("marker", {"authors": [author.pubkey], "limit": 0}) == []
    client.store(author.event(tags=[["t", "never"]]))
    client.wait_for("EVENT", "marker")
    assert not [frame for frame in client.inbox if frame[:2] == ["EVENT", "broad"]]
