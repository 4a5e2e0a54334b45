"""ILP addresses and the prefixes that cover them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farthing.ilp import address
from farthing.ilp.address import InvalidAddress
from farthing.ilp.oer import InvalidPacket

SEGMENT = st.text("abzAZ09_~-", min_size=1, max_size=12)
SCHEME = st.sampled_from(
    ["g", "private", "example", "peer", "self", "test", "test1", "test2", "test3", "local"]
)
ADDRESS = st.builds(
    lambda scheme, rest: ".".join([scheme, *rest]),
    SCHEME,
    st.lists(SEGMENT, min_size=1, max_size=6),
)


@given(ADDRESS)
def test_addresses_of_every_scheme_are_valid(text: str) -> None:
    assert address.is_valid(text)
    assert address.parse(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "g",
        "g.",
        ".g",
        "g..a",
        "g.a.",
        "g.a\n",  # `$` would let this through
        "g.a ",
        " g.a",
        "g.a b",
        "g.ä",
        "g.\u0661",  # an Arabic digit
        "g.a\x00",
        "G.a",
        "test0.a",
        "test4.a",
        "test12.a",
        "unknown.a",
        "gg.a",
        "g.a+b",
        "g.a/b",
        "g.a:b",
    ],
)
def test_text_that_is_no_address_is_refused(text: str) -> None:
    assert not address.is_valid(text)
    with pytest.raises(InvalidAddress):
        address.parse(text)


def test_an_address_has_at_most_1023_characters() -> None:
    longest = "g." + "a" * 1021
    assert len(longest) == 1023
    assert address.is_valid(longest)
    assert not address.is_valid(longest + "a")


@pytest.mark.parametrize(
    ("prefix", "text", "covered"),
    [
        ("g", "g.alice", True),
        ("g.alice", "g.alice", True),
        ("g.alice", "g.alice.inbox", True),
        ("g.al", "g.alice", False),
        ("g.alice", "g.al", False),
        ("g.alice.", "g.alice.inbox", False),  # a prefix is written without the dot
        ("g.bob", "g.alice", False),
        ("test", "test1.alice", False),
        ("g.Alice", "g.alice", False),
        ("", "g.alice", True),  # the default route
    ],
)
def test_prefixes_match_on_segments(prefix: str, text: str, covered: bool) -> None:
    assert address.is_prefix(prefix, text) is covered


@given(ADDRESS, ADDRESS)
def test_prefix_agrees_with_comparing_segments(prefix: str, text: str) -> None:
    segments = prefix.split(".")
    assert address.is_prefix(prefix, text) == (text.split(".")[: len(segments)] == segments)


@given(ADDRESS, st.data())
def test_every_leading_run_of_segments_is_a_prefix(text: str, data: st.DataObject) -> None:
    segments = text.split(".")
    count = data.draw(st.integers(1, len(segments)))
    assert address.is_prefix(".".join(segments[:count]), text)


@pytest.mark.parametrize(
    ("text", "peer"),
    [("peer.config", True), ("peer.a.b", True), ("g.peer", False), ("peering.a", False)],
)
def test_addresses_under_peer_are_for_one_link(text: str, peer: bool) -> None:
    assert address.is_peer(text) is peer


def test_an_invalid_address_is_an_invalid_packet() -> None:
    assert issubclass(InvalidAddress, InvalidPacket)
