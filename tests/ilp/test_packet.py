"""ILP packets: canonical out, strict in, every limit at its edge."""

import runpy
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farthing.ilp import packet as codec
from farthing.ilp.oer import length, var_octets
from farthing.ilp.packet import (
    Code,
    Fulfill,
    InvalidPacket,
    Prepare,
    Reject,
    decode,
    decode_prepare,
    decode_reply,
    encode,
)

EXPIRY = datetime(2030, 1, 2, 3, 4, 5, 678000, UTC)
CONDITION = bytes(range(32))
PREPARE = Prepare(107, EXPIRY, CONDITION, "example.alice", b"hi")
PREPARE_HEX = "".join(
    [
        "0c4a",  # type and length
        "000000000000006b",
        b"20300102030405678".hex(),
        CONDITION.hex(),
        "0d" + b"example.alice".hex(),
        "02" + b"hi".hex(),
    ]
)

SEGMENT = st.text("abzAZ09_~-", min_size=1, max_size=40)
ADDRESS = st.builds(
    lambda scheme, rest: ".".join([scheme, *rest]),
    st.sampled_from(["g", "private", "peer", "test2"]),
    st.lists(SEGMENT, min_size=1, max_size=20),
)
MOMENT = st.builds(
    lambda moment, ms: moment.replace(microsecond=ms * 1000),
    st.datetimes(timezones=st.just(UTC)),
    st.integers(0, 999),
)
DATA = st.binary(max_size=300)
HASH = st.binary(min_size=32, max_size=32)
PREPARES = st.builds(Prepare, st.integers(0, 2**64 - 1), MOMENT, HASH, ADDRESS, DATA)
FULFILLS = st.builds(Fulfill, HASH, DATA)
REJECTS = st.builds(
    Reject,
    st.sampled_from(Code) | st.text(st.characters(max_codepoint=127), min_size=3, max_size=3),
    st.just("") | ADDRESS,
    st.text(st.characters(exclude_categories=["Cs"]), max_size=300),
    DATA,
)
PACKETS = PREPARES | FULFILLS | REJECTS


def envelope(kind: int, body: bytes) -> bytes:
    return bytes([kind]) + length(len(body)) + body


def prepare_bytes(
    amount: bytes = bytes(8),
    expiry: bytes = b"20300102030405678",
    destination: bytes = b"g.a",
    data: bytes = b"",
) -> bytes:
    body = amount + expiry + CONDITION + var_octets(destination, 2**20)
    return envelope(12, body + var_octets(data, 2**20))


def reject_bytes(
    code: bytes = b"F00", triggered_by: bytes = b"g.a", message: bytes = b"", data: bytes = b""
) -> bytes:
    fields = [var_octets(field, 2**20) for field in (triggered_by, message, data)]
    return envelope(14, b"".join([code, *fields]))


def fulfill_bytes(fulfillment: bytes = CONDITION, data: bytes = b"") -> bytes:
    return envelope(13, fulfillment + var_octets(data, 2**20))


def test_prepare_is_laid_out_as_the_rfc_says() -> None:
    assert encode(PREPARE).hex() == PREPARE_HEX
    assert decode(bytes.fromhex(PREPARE_HEX)) == PREPARE


def test_fulfill_is_laid_out_as_the_rfc_says() -> None:
    expected = "0d23" + CONDITION.hex() + "02" + b"ok".hex()
    assert encode(Fulfill(CONDITION, b"ok")).hex() == expected
    assert decode(bytes.fromhex(expected)) == Fulfill(CONDITION, b"ok")


def test_reject_is_laid_out_as_the_rfc_says() -> None:
    expected = "0e0d" + b"F04".hex() + "03" + b"g.a".hex() + "02c3a4" + "020001"
    reject = Reject(Code.F04_INSUFFICIENT_DESTINATION_AMOUNT, "g.a", "ä", b"\x00\x01")
    assert encode(reject).hex() == expected
    assert decode(encode(reject)) == reject


@given(PACKETS)
def test_packets_round_trip(packet: Prepare | Fulfill | Reject) -> None:
    assert decode(encode(packet)) == packet


@given(PREPARES)
def test_decoded_expiry_is_in_utc(packet: Prepare) -> None:
    assert decode_prepare(encode(packet)).expires_at.tzinfo is UTC


@given(st.binary(max_size=200))
def test_garbage_is_refused_or_canonical(octets: bytes) -> None:
    try:
        packet = decode(octets)
    except InvalidPacket:
        return
    assert encode(packet) == octets


@given(PACKETS, st.data())
def test_every_cut_and_every_tail_is_refused(packet, data: st.DataObject) -> None:
    octets = encode(packet)
    cut = data.draw(st.integers(0, len(octets) - 1))
    tail = data.draw(st.binary(min_size=1, max_size=5))
    for broken in (octets[:cut], octets + tail):
        with pytest.raises(InvalidPacket):
            decode(broken)


def test_mutated_packets_are_refused_or_canonical() -> None:
    # By path, so that it does not matter how pytest imports this directory.
    fuzz = runpy.run_path(str(Path(__file__).with_name("fuzz_packet.py")))["fuzz"]
    outcomes = fuzz(5000, seed=1)
    assert sum(outcomes.values()) == 5000
    assert all(outcomes[kind] > 50 for kind in ("Prepare", "Fulfill", "Reject"))
    assert len(outcomes) > 10, "the mutations should reach many different refusals"


# Amount


@pytest.mark.parametrize("amount", [0, 1, 2**63, 2**64 - 1])
def test_every_amount_of_64_bits_is_read_back(amount: int) -> None:
    octets = prepare_bytes(amount=amount.to_bytes(8, "big"))
    assert decode_prepare(octets).amount == amount
    assert encode(decode(octets)) == octets


@pytest.mark.parametrize("amount", [-1, 2**64])
def test_amount_outside_u64_is_not_written(amount: int) -> None:
    with pytest.raises(InvalidPacket):
        encode(Prepare(amount, EXPIRY, CONDITION, "g.a", b""))


# Condition and fulfillment


@pytest.mark.parametrize("size", [0, 31, 33])
def test_hashes_have_32_bytes(size: int) -> None:
    with pytest.raises(InvalidPacket):
        encode(Prepare(1, EXPIRY, bytes(size), "g.a", b""))
    with pytest.raises(InvalidPacket):
        encode(Fulfill(bytes(size)))


# Data, message, address


def with_data(size: int) -> list[Prepare | Fulfill | Reject]:
    data = bytes(size)
    return [
        Prepare(1, EXPIRY, CONDITION, "g.a", data),
        Fulfill(CONDITION, data),
        Reject("F00", "", "", data),
    ]


@pytest.mark.parametrize("packet", with_data(32767), ids=["prepare", "fulfill", "reject"])
def test_data_at_the_limit_is_read_back(packet) -> None:
    assert decode(encode(packet)) == packet


@pytest.mark.parametrize("packet", with_data(32768), ids=["prepare", "fulfill", "reject"])
def test_data_past_the_limit_is_not_written(packet) -> None:
    with pytest.raises(InvalidPacket, match="at most 32767"):
        encode(packet)


@pytest.mark.parametrize("build", [prepare_bytes, fulfill_bytes, reject_bytes])
def test_data_past_the_limit_is_not_read(build) -> None:
    decode(build(data=bytes(32767)))
    with pytest.raises(InvalidPacket, match="at most 32767"):
        decode(build(data=bytes(32768)))


def test_message_limit_counts_bytes() -> None:
    at_limit = "ä" * 4095 + "x"
    assert len(at_limit.encode()) == 8191
    assert decode(encode(Reject("F00", "", at_limit))) == Reject("F00", "", at_limit)
    with pytest.raises(InvalidPacket, match="at most 8191"):
        encode(Reject("F00", "", "ä" * 4096))
    with pytest.raises(InvalidPacket, match="at most 8191"):
        decode(reject_bytes(message=b"x" * 8192))


@pytest.mark.parametrize("message", [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"])
def test_message_must_be_utf8(message: bytes) -> None:
    with pytest.raises(InvalidPacket, match="UTF-8"):
        decode(reject_bytes(message=message))


def test_message_with_a_lone_surrogate_is_not_written() -> None:
    with pytest.raises(InvalidPacket, match="UTF-8"):
        encode(Reject("F00", "", "\ud800"))


def test_an_address_above_1023_characters_is_refused() -> None:
    longest = "g." + "a" * 1021
    assert decode_prepare(prepare_bytes(destination=longest.encode())).destination == longest
    assert decode(encode(Reject("F00", longest, ""))) == Reject("F00", longest, "")
    longer = longest + "a"
    for packet in (Prepare(1, EXPIRY, CONDITION, longer, b""), Reject("F00", longer, "")):
        with pytest.raises(InvalidPacket):
            encode(packet)
    for octets in (
        prepare_bytes(destination=longer.encode()),
        reject_bytes(triggered_by=longer.encode()),
    ):
        with pytest.raises(InvalidPacket):
            decode(octets)


@pytest.mark.parametrize("text", ["g", "g.", "g.a\n", "x.a", "g.ä", "g.\u0661"])
def test_addresses_are_checked_both_ways(text: str) -> None:
    for packet in (Prepare(1, EXPIRY, CONDITION, text, b""), Reject("F00", text, "")):
        with pytest.raises(InvalidPacket):
            encode(packet)
    for octets in (
        prepare_bytes(destination=text.encode()),
        reject_bytes(triggered_by=text.encode()),
    ):
        with pytest.raises(InvalidPacket):
            decode(octets)


def test_only_a_reject_may_leave_its_address_empty() -> None:
    assert decode(reject_bytes(triggered_by=b"")) == Reject("F00", "", "")
    with pytest.raises(InvalidPacket):
        decode(prepare_bytes(destination=b""))
    with pytest.raises(InvalidPacket):
        encode(Prepare(1, EXPIRY, CONDITION, "", b""))


# Expiry


@pytest.mark.parametrize(
    ("digits", "moment"),
    [
        (b"00010101000000000", datetime(1, 1, 1, tzinfo=UTC)),
        (b"19700101000000000", datetime(1970, 1, 1, tzinfo=UTC)),
        (b"20240229235959999", datetime(2024, 2, 29, 23, 59, 59, 999000, UTC)),
        (b"99991231235959999", datetime(9999, 12, 31, 23, 59, 59, 999000, UTC)),
    ],
)
def test_expiry_is_read_and_written(digits: bytes, moment: datetime) -> None:
    octets = prepare_bytes(expiry=digits)
    assert decode_prepare(octets).expires_at == moment
    assert encode(decode(octets)) == octets


@pytest.mark.parametrize(
    "digits",
    [
        b"00000101000000000",  # no year 0
        b"20301301000000000",  # month 13
        b"20300001000000000",  # month 0
        b"20300100000000000",  # day 0
        b"20300132000000000",
        b"20300230000000000",  # 30 February
        b"20230229000000000",  # no leap year
        b"20300101240000000",  # hour 24
        b"20300101006000000",  # minute 60
        b"20300101000060000",  # second 60
        b"2030010200000000 ",
        b" 2030010200000000",
        b"+2030010200000000",
        b"2030-01-02T00:00Z",
        b"2030010200000000Z",
        b"2030010200000000_",
        b"203001020000000\xd9\xa1",  # an Arabic digit
        b"2030010200000000\xb2",  # a superscript in Latin-1
    ],
)
def test_what_is_no_moment_is_refused(digits: bytes) -> None:
    assert len(digits) == 17
    with pytest.raises(InvalidPacket, match="expiry"):
        decode(prepare_bytes(expiry=digits))


def test_expiry_in_another_zone_is_written_in_utc() -> None:
    elsewhere = EXPIRY.astimezone(timezone(timedelta(hours=-7)))
    assert encode(Prepare(107, elsewhere, CONDITION, "example.alice", b"hi")) == encode(PREPARE)


@pytest.mark.parametrize(
    "moment",
    [
        datetime(2030, 1, 1),
        datetime(2030, 1, 1, microsecond=1, tzinfo=UTC),
        datetime(2030, 1, 1, microsecond=999999, tzinfo=UTC),
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1))),
        datetime(9999, 12, 31, 23, 59, tzinfo=timezone(timedelta(hours=-1))),
    ],
)
def test_expiry_that_a_packet_cannot_carry_is_not_written(moment: datetime) -> None:
    with pytest.raises(InvalidPacket, match="expiry"):
        encode(Prepare(1, moment, CONDITION, "g.a", b""))


@given(st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.timezones()))
def test_to_milliseconds_rounds_down_to_what_can_be_written(moment: datetime) -> None:
    rounded = codec.to_milliseconds(moment)
    assert timedelta(0) <= moment.astimezone(UTC) - rounded < timedelta(milliseconds=1)
    packet = Prepare(1, rounded, CONDITION, "g.a", b"")
    assert decode(encode(packet)) == packet


# Codes


def test_there_is_a_code_for_every_one_of_the_rfc() -> None:
    assert {code.value for code in Code} == {
        *(f"F0{n}" for n in range(9)),
        *(f"T0{n}" for n in range(6)),
        *(f"R0{n}" for n in range(3)),
        *("F99", "T99", "R99"),
    }


@pytest.mark.parametrize("code", Code)
def test_code_names_begin_with_the_code_which_begins_with_its_class(code: Code) -> None:
    assert code.name.startswith(code.value + "_")
    assert code[0] in "FTR"
    assert codec.final(code) == (code[0] == "F")


def test_known_codes_decode_to_the_enum_and_others_stay_text() -> None:
    known = decode(reject_bytes(code=b"T04"))
    other = decode(reject_bytes(code=b"F42"))
    assert isinstance(known, Reject) and known.code is Code.T04_INSUFFICIENT_LIQUIDITY
    assert isinstance(other, Reject) and other.code == "F42" and codec.final(other.code)


@pytest.mark.parametrize("code", ["", "F0", "F000", "F0ä", "\u0661\u0661\u0661"])
def test_a_code_is_three_ascii_characters(code: str) -> None:
    with pytest.raises(InvalidPacket):
        encode(Reject(code, "", ""))


def test_a_code_that_is_not_ascii_is_refused() -> None:
    with pytest.raises(InvalidPacket, match="ASCII"):
        decode(reject_bytes(code=b"F\xb00"))


# Envelope


@pytest.mark.parametrize("kind", [0, 1, 11, 15, 255])
def test_unknown_types_are_refused(kind: int) -> None:
    with pytest.raises(InvalidPacket):
        decode(bytes([kind]) + encode(PREPARE)[1:])


@pytest.mark.parametrize("octets", [b"", b"\x0c", b"\x0c\x00", b"\x0d\x00", b"\x0e\x00"])
def test_empty_packets_are_refused(octets: bytes) -> None:
    with pytest.raises(InvalidPacket):
        decode(octets)


def test_trailing_bytes_inside_the_envelope_are_refused() -> None:
    for packet in (PREPARE, Fulfill(CONDITION), Reject("F00", "", "")):
        octets = encode(packet)
        with pytest.raises(InvalidPacket, match="trailing"):
            decode(envelope(octets[0], octets[2:] + b"\x00"))


def test_non_canonical_lengths_are_refused() -> None:
    octets = encode(PREPARE)
    with pytest.raises(InvalidPacket, match="non-canonical"):
        decode(octets[:1] + b"\x81" + octets[1:])
    with pytest.raises(InvalidPacket, match="non-canonical"):
        decode(envelope(13, CONDITION + b"\x81\x02ok"))


def test_a_claimed_length_of_exabytes_is_refused() -> None:
    huge = b"\x88" + b"\x7f" * 8
    for octets in (b"\x0c" + huge, envelope(13, CONDITION + huge)):
        with pytest.raises(InvalidPacket):
            decode(octets)


def test_decode_prepare_and_decode_reply_take_their_own_only() -> None:
    fulfill, reject = Fulfill(CONDITION), Reject("F00", "", "")
    assert decode_prepare(encode(PREPARE)) == PREPARE
    assert decode_reply(encode(fulfill)) == fulfill
    assert decode_reply(encode(reject)) == reject
    for other in (fulfill, reject):
        with pytest.raises(InvalidPacket):
            decode_prepare(encode(other))
    with pytest.raises(InvalidPacket):
        decode_reply(encode(PREPARE))


def test_repr_shows_neither_fulfillment_nor_data() -> None:
    assert "secret" not in repr(Fulfill(b"secret".ljust(32), b"secret"))
    assert "secret" not in repr(Prepare(1, EXPIRY, CONDITION, "g.a", b"secret"))
