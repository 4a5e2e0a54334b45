"""Events as TOON: nothing is lost, and nothing but InvalidToon comes out of bad bytes."""

import random
import re
from contextlib import suppress

import pytest
import toons
from hypothesis import example, given
from hypothesis import strategies as st

from farthing.ilp import toon
from farthing.ilp.packet import DATA_MAX
from farthing.ilp.toon import InvalidToon, NotEncodable

GM = {
    "id": "a" * 64,
    "pubkey": "b" * 64,
    "created_at": 1234567890,
    "kind": 1,
    "tags": [],
    "content": "gm",
    "sig": "c" * 128,
}

# What a format without quotes around every string is likely to get wrong.
AWKWARD = [
    *("", " ", "  a", "a  ", "\n", "a\nb", "a\r\nb", "\t", "a\tb", "\r", "\x0b", "\x0c", "\b"),
    *("true", "false", "null", "True", "NaN", "Infinity", "-", "- ", "- x", "-1", "-0", "0", "05"),
    *("123", "1.5", "1.0", ".5", "1.", "1e5", "1E-5", "1e400", "0x10", "1_000", "9" * 40, "+1"),
    *(":", "a: b", "a:b", ",", "a,b", "|", "[", "]", "{", "}", "[]", "{}", "[2]: a,b", "- [1]: x"),
    *("a[1]{b}:", "]{", "}:", "tags[1]:", "id: x", '"', '""', '"a"', "'", "\\", "\\n", "\\u0041"),
    *("#", "# x", "//", "---", "...", "a.b", "=", "~", "!", "&", "*", "@", "`", "%"),
    *("\x00", "\x1f", "\x7f", "\x80", "\x85", "\xa0", "\u1680", "\u2003", "\u2028", "\u2029"),
    *("\u200b", "\ufeff", "\ufeffa", "\u3000", "\ufffd", "\uffff", "\U0001f600", "\U0010ffff"),
    *("e\u0301", "\u00e9", "\u0661", "\u05d0\u200f"),
]
TEXT = (
    st.sampled_from(AWKWARD)
    | st.lists(st.sampled_from(AWKWARD), max_size=4).map("".join)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
    | st.text(st.characters(max_codepoint=0x7F), max_size=20)
)
HEX = "0123456789abcdef"
HEX64 = st.text(HEX, min_size=64, max_size=64) | st.sampled_from(
    ["0" * 64, "1" * 64, "1" * 30 + "e" + "1" * 33, "0" + "e" + "1" * 62]
)


def uniform_tags(width: int) -> st.SearchStrategy[list[list[str]]]:
    return st.lists(st.lists(TEXT, min_size=width, max_size=width), max_size=4)


EVENT = st.fixed_dictionaries(
    {
        "id": HEX64,
        "pubkey": HEX64,
        "created_at": st.integers(0, 2**64) | st.integers(-(2**63), 2**53),
        "kind": st.integers(0, 65535),
        "tags": st.lists(st.lists(TEXT, max_size=4), max_size=4)
        | st.integers(0, 4).flatmap(uniform_tags),
        "content": TEXT,
        "sig": st.tuples(HEX64, HEX64).map("".join),
    }
)


def assert_round_trip(event: dict) -> None:
    back = toon.loads(toon.dumps(event))
    assert back == event
    assert type(back["created_at"]) is int and type(back["kind"]) is int


def test_an_event_has_the_size_of_the_vector() -> None:
    assert len(toon.dumps(GM)) == 327


def test_fields_come_in_the_order_of_nip_01() -> None:
    backwards = dict(reversed(GM.items()))
    assert toon.dumps(backwards) == toon.dumps(GM)
    assert list(toon.loads(toon.dumps(backwards))) == list(toon.FIELDS)


def test_an_event_is_written_line_by_line() -> None:
    event = GM | {"tags": [["e", "1", ""], ["t", "x y"]], "content": "a\nb"}
    lines = toon.dumps(event).decode().split("\n")
    assert lines[4:8] == [
        "tags[2]:",
        '  - [3]: e,"1",""',
        "  - [2]: t,x y",
        r'content: "a\nb"',
    ]


@given(EVENT)
@example(GM | {"tags": [[]]})
@example(GM | {"tags": [[], [], []]})
@example(GM | {"tags": [[""]]})
@example(GM | {"tags": [["a", "b"], ["c", "d"]]})
def test_events_round_trip(event: dict) -> None:
    assert_round_trip(event)


@pytest.mark.parametrize("text", AWKWARD, ids=ascii)
def test_awkward_text_round_trips_everywhere(text: str) -> None:
    assert_round_trip(GM | {"content": text})
    assert_round_trip(GM | {"tags": [[text]]})
    assert_round_trip(GM | {"tags": [["t", text], [text, text, "x"], [], [text]]})


def test_every_character_below_u3100_round_trips() -> None:
    for code in range(0x3100):
        character = chr(code)
        assert_round_trip(GM | {"content": character, "tags": [[character, f"a{character}b"]]})


def test_random_awkward_events_round_trip() -> None:
    rng = random.Random(3)

    def text() -> str:
        return "".join(rng.choices(AWKWARD, k=rng.randrange(4)))

    for _ in range(3000):
        tags = [[text() for _ in range(rng.randrange(4))] for _ in range(rng.randrange(4))]
        assert_round_trip(GM | {"tags": tags, "content": text()})


def test_a_packetful_round_trips() -> None:
    assert_round_trip(GM | {"content": '"\n' * 8000})
    assert_round_trip(GM | {"tags": [["p", "d" * 64]] * 400})


@pytest.mark.parametrize(
    "written",
    [
        "tags[0]:",  # encoders of TOON before 4
        "tags: []",
    ],
)
def test_both_spellings_of_no_tags(written: str) -> None:
    encoded = toon.dumps(GM).replace(b"tags: []", written.encode())
    assert toon.loads(encoded) == GM


# What dumps refuses


@pytest.mark.parametrize(
    "change",
    [
        {"kind": 1.0},  # toons writes 1
        {"kind": True},
        {"created_at": float("nan")},  # toons writes null
        {"created_at": "1"},
        {"created_at": None},
        {"content": None},
        {"content": b"gm"},
        {"tags": ()},
        {"tags": [("e", "x")]},  # toons gives a list back
        {"tags": [["e", 1]]},
        {"tags": [["e", None]]},
        {"tags": [["e", ["x"]]]},
        {"tags": ["e"]},
        {"tags": {"e": "x"}},
        {"tags": None},
        {"content": "\ud800"},
        {"tags": [["\udfff"]]},
        {"extra": 1},
    ],
    ids=lambda change: ascii(change)[:40],
)
def test_what_would_change_on_the_way_is_refused(change: dict) -> None:
    with pytest.raises(NotEncodable):
        toon.dumps(GM | change)


def test_an_integer_too_long_to_write_is_refused() -> None:
    with pytest.raises(NotEncodable):
        toon.dumps(GM | {"created_at": 10**5000})


@pytest.mark.parametrize("name", toon.FIELDS)
def test_an_event_without_a_field_is_refused(name: str) -> None:
    with pytest.raises(NotEncodable):
        toon.dumps({key: value for key, value in GM.items() if key != name})


@pytest.mark.parametrize("flawed", ["id: x", "", "a: 1\na: 2"])
def test_an_encoder_that_loses_something_is_caught(monkeypatch, flawed: str) -> None:
    monkeypatch.setattr(toons, "dumps", lambda event: flawed)
    with pytest.raises(NotEncodable):
        toon.dumps(GM)


def test_toons_still_loses_floats_and_tuples() -> None:
    """The inputs that `dumps` has to keep away from `toons`; a change here is worth knowing."""
    for value, back in [(1.0, 1), (-0.0, 0), (float("nan"), None), (float("inf"), None)]:
        read = toons.loads(toons.dumps({"a": value}))["a"]
        assert read == back and type(read) is type(back)
    assert toons.loads(toons.dumps({"a": ("x",)})) == {"a": ["x"]}


# What loads refuses


@pytest.mark.parametrize(
    "octets",
    [
        b"",
        b"\n\n",
        b"# only a comment",
        b"gm",
        b"1",
        b"true",
        b"[2]: a,b",
        b"\xff",
        b"content: \xc0\x80",
        b"content: \xed\xa0\x80",
        b'content: "\\ud800"',
        b'content: "open',
        b'content: "\\q"',
        b"id: a\nid: b",
        b"tags[2]: a",
        b"tags[99999999999999999999]: a",
        b"tags[1000000000000000000]:",
        b"created_at: " + b"1" * 5000,  # a plain ValueError in toons
        b"created_at: 1e999999999",
        b"\n".join(b"  " * depth + b"a:" for depth in range(1100)),
        b'{"id": "json"}\n{',
        b"\x01\x01\x00\x02{}",  # a BTP-NIPs packet
    ],
    ids=lambda octets: ascii(octets)[:30],
)
def test_octets_that_are_no_toon_object_are_refused(octets: bytes) -> None:
    with pytest.raises(InvalidToon):
        toon.loads(octets)


@pytest.mark.parametrize(
    "header",
    [
        "tags[1]{a,b}:",
        "tags[0]{a{b,c}}:",
        "tags[1|]{a|b}:",
        '"tags"[1]{a,b}:',
        '"x: y"[1]{a,b}:',
        'a"b[1]{a,b}:',
        "tags[1]{a,b}: inline",
        "  - k[1]{a,b}:",
        "  - - k[1]{a,b}:",
        "content[1]{a,b}:",
        "\ufefftags[1]{a,b}:",
    ],
    ids=ascii,
)
def test_tables_are_refused_before_the_parser_sees_them(monkeypatch, header: str) -> None:
    monkeypatch.setattr(toons, "loads", lambda text: pytest.fail("the parser was asked"))
    with pytest.raises(InvalidToon, match="table"):
        toon.loads(f"id: x\n{header}\n  1,2".encode())


@given(
    st.lists(
        st.sampled_from(
            [
                "]{",
                "a",
                ":",
                "tags: ",
                "x_y:",
                "- [2]: ",
                "- [3|]:",
                "- [\t]:",
                "  ",
                "]",
                "{",
                "\n",
            ]
        )
    ).map("".join)
)
def test_tables_are_found_as_line_by_line(text: str) -> None:
    values = re.compile(r" *(?:- \[\d+[|\t]?\]|[a-z_]+):")
    lines = [line for line in text.split("\n") if "]{" in line]
    assert toon._has_table(text) == any(values.match(line) is None for line in lines)


@pytest.mark.parametrize("line", ["", " ", "  ", "a:", "-", "  -", "]{", "a:]{"], ids=ascii)
def test_more_lines_than_an_event_has_are_refused_before_the_parser_sees_them(
    monkeypatch, line: str
) -> None:
    monkeypatch.setattr(toons, "loads", lambda text: pytest.fail("the parser was asked"))
    with pytest.raises(InvalidToon, match="lines"):
        toon.loads(f"{line}\n".encode() * (32_767 // (len(line) + 1)))


@pytest.mark.parametrize("tag", [[], [""], ["x"]])
def test_as_many_tags_as_a_packet_holds_are_read(tag: list[str]) -> None:
    line = len(toon.dumps(GM | {"tags": [tag, tag]})) - len(toon.dumps(GM | {"tags": [tag]}))
    many = GM | {"tags": [tag] * ((DATA_MAX - 400) // line)}
    assert len(toon.dumps(many)) > DATA_MAX - 500
    assert_round_trip(many)


class Panic(BaseException):
    """As native code raises it."""


@pytest.mark.parametrize("error", [ValueError, TypeError, RecursionError, MemoryError, Panic])
def test_any_failure_of_the_parser_is_invalid_toon(monkeypatch, error) -> None:
    def fail(text: str) -> None:
        raise error

    monkeypatch.setattr(toons, "loads", fail)
    with pytest.raises(InvalidToon):
        toon.loads(b"id: x")


def test_an_interrupt_is_not_swallowed(monkeypatch) -> None:
    def interrupt(text: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(toons, "loads", interrupt)
    with pytest.raises(KeyboardInterrupt):
        toon.loads(b"id: x")


@given(st.binary(max_size=100) | TEXT.map(str.encode))
def test_garbage_gives_an_object_or_invalid_toon(octets: bytes) -> None:
    with suppress(InvalidToon):
        assert isinstance(toon.loads(octets), dict)


def test_mutated_events_give_an_object_or_invalid_toon() -> None:
    rng = random.Random(5)
    pieces = [b"\n", b"  ", b"- ", b"[", b"]", b"{", b"}", b":", b",", b'"', b"\\", b"\\u", b"\xff"]
    event = toon.dumps(GM | {"tags": [["e", "x"], ["", "1"], []], "content": "a\nb"})
    for _ in range(5000):
        octets = event
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(octets))
            octets = octets[:at] + rng.choice(pieces) + octets[at + rng.randrange(3) :]
        with suppress(InvalidToon):
            assert isinstance(toon.loads(octets), dict)
