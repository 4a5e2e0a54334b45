"""The negentropy wire format: what is written is read back, and nothing else is taken."""

import time
import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from farthing.nostr.negentropy.wire import (
    INFINITY,
    MAX_U64,
    START,
    InvalidNegentropy,
    Mode,
    Range,
    decode_bound,
    decode_ranges,
    decode_varint,
    decode_version,
    encode_bound,
    encode_ranges,
    encode_varint,
    minimal_bound,
)

MEGABYTE = 1 << 20

timestamps = st.integers(0, MAX_U64 - 1) | st.sampled_from([0, 1, 1_700_000_000, MAX_U64 - 1])
prefixes = st.binary(max_size=32)
records = st.builds(lambda t, i: t.to_bytes(8, "big") + i, timestamps, st.binary(max_size=32)).map(
    lambda record: record.ljust(40, b"\x07")
)
payloads = st.one_of(
    st.just((Mode.SKIP, b"")),
    st.tuples(st.just(Mode.FINGERPRINT), st.binary(min_size=16, max_size=16)),
    st.tuples(
        st.just(Mode.ID_LIST),
        st.lists(st.binary(min_size=32, max_size=32), max_size=5).map(b"".join),
    ),
)


@st.composite
def messages(draw: st.DrawFn) -> list[Range]:
    uppers = sorted(draw(st.lists(records, max_size=8, unique=True)))
    cut = [upper[: draw(st.integers(8, 40))] for upper in uppers]
    return [Range(upper, *draw(payloads)) for upper in sorted(cut)]


def read(message: bytes) -> list[Range]:
    return list(decode_ranges(message))


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (1, "01"),
        (127, "7f"),
        (128, "8100"),
        (300, "822c"),
        (MAX_U64, "81" + "ff" * 8 + "7f"),
    ],
)
def test_varints_are_base_128_most_significant_first(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded
    assert decode_varint(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)


@given(st.integers(0, MAX_U64), st.binary(max_size=4), st.binary(max_size=4))
def test_varint_is_read_back_and_what_follows_is_left(value: int, head: bytes, tail: bytes) -> None:
    encoded = encode_varint(value)
    assert decode_varint(head + encoded + tail, len(head)) == (value, len(head + encoded))


@given(timestamps, prefixes, timestamps, prefixes)
def test_bound_is_read_back(early: int, before: bytes, late: int, prefix: bytes) -> None:
    previous, bound = sorted([early.to_bytes(8, "big") + before, late.to_bytes(8, "big") + prefix])
    encoded = encode_bound(bound, previous)
    assert decode_bound(encoded, 0, previous) == (bound, len(encoded))


@given(records, records)
@example(bytes(39) + b"\1", bytes(39) + b"\2")
def test_minimal_bound_separates_and_no_shorter_one_does(one: bytes, other: bytes) -> None:
    if one == other:
        return
    low, high = sorted([one, other])
    bound = minimal_bound(low, high)
    assert low < bound <= high
    assert len(bound) == 8 or bound[:-1] <= low
    if low[:8] != high[:8]:
        assert bound == high[:8]


@given(messages())
def test_ranges_are_read_back(ranges: list[Range]) -> None:
    assert read(b"\x61" + encode_ranges(ranges, START)) == ranges


@given(messages())
def test_cut_short_anywhere_a_message_is_refused_or_ends_between_ranges(
    ranges: list[Range],
) -> None:
    message = b"\x61" + encode_ranges(ranges, START)
    ends = {1 + len(encode_ranges(ranges[:count], START)) for count in range(len(ranges) + 1)}
    for size in range(1, len(message)):
        if size in ends:
            assert read(message[:size]) == ranges[: len(read(message[:size]))]
        else:
            with pytest.raises(InvalidNegentropy):
                read(message[:size])


@given(st.binary(max_size=200))
def test_garbage_is_refused_in_one_way_only(garbage: bytes) -> None:
    try:
        read(b"\x61" + garbage)
    except InvalidNegentropy:
        return


@pytest.mark.parametrize(
    ("ranges", "why"),
    [
        ("81", "inside a varint"),
        ("ff" * 9, "inside a varint"),
        ("ff" * 9 + "7f", "64 bits"),
        ("82" + "80" * 8 + "00", "64 bits"),
        ("80" * 11 + "00", "64 bits"),
        ("00", "inside a varint"),
        ("0021" + "aa" * 33 + "00", "longer than an id"),
        ("00ffffffff7f", "longer than an id"),
        ("0002aa", "ends early"),
        ("0000", "inside a varint"),
        ("000003", "unknown mode"),
        ("0000ff7f", "unknown mode"),
        ("000001" + "aa" * 15, "ends early"),
        ("00000202" + "aa" * 63, "ends early"),
        ("00000281ffffffffffffffff7f", "ends early"),
        ("0501bb00" + "0101aa00", "out of order"),
        ("0502bb0000" + "0101bb00", None),
        ("81ffffffffffffffff7f0000030000", "64 bits"),
        ("000000" + "000000", "after infinity"),
        ("00000200" + "000001" + "aa" * 16 + "000000", "after infinity"),
        ("00000200" + "000001" + "aa" * 16, None),
        ("00000200" + "00", "inside a varint"),
    ],
)
def test_malformed_ranges_are_refused(ranges: str, why: str | None) -> None:
    message = bytes.fromhex("61" + ranges)
    if why is None:
        read(message)
    else:
        with pytest.raises(InvalidNegentropy, match=why):
            read(message)


@pytest.mark.parametrize("message", ["", "00", "5f", "70", "ff6100"])
def test_message_starts_with_a_version(message: str) -> None:
    with pytest.raises(InvalidNegentropy, match="version"):
        decode_version(bytes.fromhex(message))


@pytest.mark.parametrize(
    "garbage",
    [
        pytest.param(b"\x00" * 16 * MEGABYTE, id="zeros"),
        pytest.param(b"\x80" * 16 * MEGABYTE, id="endless varint"),
        pytest.param(b"\xff" * 16 * MEGABYTE, id="ones"),
        pytest.param(b"\x00\x20" * 8 * MEGABYTE, id="prefixes"),
        pytest.param(b"\x00\x00\x02\xff\xff\xff\x7f" + bytes(16 * MEGABYTE), id="count too high"),
        pytest.param(
            b"\x00\x00\x02\x9f\xff\x7f" + bytes(16 * MEGABYTE), id="one id list, then more"
        ),
    ],
)
def test_sixteen_megabytes_of_garbage_cost_little(garbage: bytes) -> None:
    message = b"\x61" + garbage
    tracemalloc.start()
    began = time.process_time()
    with pytest.raises(InvalidNegentropy):
        for _ in decode_ranges(message):
            pass
    seconds = time.process_time() - began
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seconds < 2
    assert peak < 2 * len(message)


def test_very_many_ranges_are_read_one_at_a_time() -> None:
    message = b"\x61" + b"\x02\x00\x00" * 50_000
    tracemalloc.start()
    count = sum(1 for _ in decode_ranges(message))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 50_000
    assert peak < 10_000


def test_infinity_is_written_as_zero() -> None:
    assert encode_bound(INFINITY, START) == bytes(2)
    assert decode_bound(bytes(2), 0, START) == (INFINITY, 2)
