"""Canonical OER: what is written can be read, and has no second spelling."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farthing.ilp import oer
from farthing.ilp.oer import InvalidOer, InvalidPacket, OctetReader


@pytest.mark.parametrize(
    ("count", "encoded"),
    [
        (0, "00"),
        (1, "01"),
        (127, "7f"),
        (128, "8180"),
        (255, "81ff"),
        (256, "820100"),
        (65535, "82ffff"),
        (65536, "83010000"),
        (2**64 - 1, "88ffffffffffffffff"),
    ],
)
def test_length_is_written_and_read(count: int, encoded: str) -> None:
    assert oer.length(count).hex() == encoded
    reader = OctetReader(bytes.fromhex(encoded))
    assert reader.length() == count
    reader.end()


@pytest.mark.parametrize(
    "encoded",
    [
        "80",  # the indefinite form of other encodings
        "8100",
        "817f",  # fits in one byte
        "820080",
        "8200ff",  # leading zero
        "83000100",
        "ff" + "01" * 127,
        "89010000000000000000",  # more than eight octets of length
    ],
)
def test_non_canonical_length_is_refused(encoded: str) -> None:
    with pytest.raises(InvalidOer):
        OctetReader(bytes.fromhex(encoded)).length()


@pytest.mark.parametrize("encoded", ["", "81", "8201", "88ffffffffffffff"])
def test_truncated_length_is_refused(encoded: str) -> None:
    with pytest.raises(InvalidOer, match="truncated"):
        OctetReader(bytes.fromhex(encoded)).length()


@pytest.mark.parametrize("count", [-1, 2**64])
def test_impossible_length_is_not_written(count: int) -> None:
    with pytest.raises(InvalidOer):
        oer.length(count)


@given(st.integers(0, 2**64 - 1))
def test_length_has_one_spelling(count: int) -> None:
    assert OctetReader(oer.length(count)).length() == count


@given(st.binary(max_size=12))
def test_every_length_that_reads_is_the_one_that_is_written(octets: bytes) -> None:
    reader = OctetReader(octets)
    try:
        count = reader.length()
    except InvalidOer:
        return
    assert oer.length(count) == octets[: len(octets) - reader.remaining]


@pytest.mark.parametrize(("write", "size"), [(oer.u8, 1), (oer.u64, 8)])
def test_an_integer_outside_its_size_is_refused(write, size: int) -> None:
    maximum = 2 ** (8 * size) - 1
    assert write(0) == bytes(size)
    assert write(maximum) == b"\xff" * size
    for outside in (-1, maximum + 1):
        with pytest.raises(InvalidOer):
            write(outside)


@given(st.integers(0, 2**8 - 1), st.integers(0, 2**64 - 1))
def test_integers_round_trip(small: int, large: int) -> None:
    reader = OctetReader(oer.u8(small) + oer.u64(large))
    assert (reader.u8(), reader.u64()) == (small, large)
    reader.end()


@given(st.binary(max_size=400))
def test_var_octets_round_trip(value: bytes) -> None:
    reader = OctetReader(oer.var_octets(value, 400))
    assert reader.var_octets(400) == value
    reader.end()


def test_octets_above_the_limit_are_refused() -> None:
    at_limit = oer.var_octets(bytes(300), 300)
    assert OctetReader(at_limit).var_octets(300) == bytes(300)
    with pytest.raises(InvalidOer, match="at most 299"):
        OctetReader(at_limit).var_octets(299)
    with pytest.raises(InvalidOer, match="at most 299"):
        oer.var_octets(bytes(300), 299)


def test_var_octets_one_short_is_refused() -> None:
    with pytest.raises(InvalidOer, match="truncated"):
        OctetReader(oer.var_octets(bytes(300), 300)[:-1]).var_octets(300)


def test_a_claimed_length_alone_reads_nothing() -> None:
    with pytest.raises(InvalidOer, match="truncated"):
        OctetReader(bytes.fromhex("88ffffffffffffffff")).var_octets(2**64)


def test_octets_of_another_length_are_refused() -> None:
    assert oer.octets(b"abc", 3) == b"abc"
    assert OctetReader(b"abc").octets(3) == b"abc"
    for wrong in (b"ab", b"abcd"):
        with pytest.raises(InvalidOer, match="exactly 3"):
            oer.octets(wrong, 3)
    with pytest.raises(InvalidOer, match="truncated"):
        OctetReader(b"ab").octets(3)


def test_trailing_bytes_are_refused() -> None:
    reader = OctetReader(b"\x01\x02")
    reader.u8()
    with pytest.raises(InvalidOer, match="trailing"):
        reader.end()


def test_what_oer_refuses_is_an_invalid_packet() -> None:
    assert issubclass(InvalidOer, InvalidPacket)
    assert issubclass(InvalidPacket, ValueError)
