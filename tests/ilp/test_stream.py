"""STREAM packets: the RFC's vectors, round trips, encryption and fulfillments."""

import hmac
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farthing.ilp.oer import U64_MAX, InvalidPacket
from farthing.ilp.stream import (
    NotDecryptable,
    StreamPacket,
    decode,
    encode,
    keys_of,
)
from farthing.ilp.stream_frames import (
    ConnectionAssetDetails,
    ConnectionClose,
    ConnectionDataBlocked,
    ConnectionMaxData,
    ConnectionMaxStreamId,
    ConnectionNewAddress,
    ConnectionStreamIdBlocked,
    Frame,
    StreamClose,
    StreamData,
    StreamDataBlocked,
    StreamMaxData,
    StreamMaxMoney,
    StreamMoney,
    StreamMoneyBlocked,
    StreamReceipt,
)

JS_MAX = 2**53 - 1
MAX = "08ffffffffffffffff"
JS = "071fffffffffffff"
SECRET = bytes(range(32))


def test_packets_have_the_bytes_of_the_rfc() -> None:
    # test-vectors/StreamPacketFixtures.json of RFC 0029
    assert encode(StreamPacket(0, 12, 0)).hex() == "010c010001000100"
    assert encode(StreamPacket(JS_MAX, 12, 0)).hex() == f"010c{JS}01000100"
    assert encode(StreamPacket(U64_MAX, 12, 0)).hex() == f"010c{MAX}01000100"
    assert encode(StreamPacket(0, 13, 0)).hex() == "010d010001000100"
    assert encode(StreamPacket(0, 14, 0)).hex() == "010e010001000100"
    assert encode(StreamPacket(0, 12, JS_MAX)).hex() == f"010c0100{JS}0100"
    assert encode(StreamPacket(0, 12, U64_MAX)).hex() == f"010c0100{MAX}0100"


@pytest.mark.parametrize(
    ("octets", "frame"),
    [
        ("0106" + "01" + "04" + b"fail".hex(), ConnectionClose(1, "fail")),
        ("020e" + "0d" + b"example.alice".hex(), ConnectionNewAddress("example.alice")),
        ("0705" + "03" + b"ABC".hex() + "ff", ConnectionAssetDetails("ABC", 255)),
        ("0302" + "0100", ConnectionMaxData(0)),
        ("0308" + JS, ConnectionMaxData(JS_MAX)),
        ("0309" + MAX, ConnectionMaxData(U64_MAX)),
        ("0402" + "0100", ConnectionDataBlocked(0)),
        ("0409" + MAX, ConnectionDataBlocked(U64_MAX)),
        ("0502" + "0100", ConnectionMaxStreamId(0)),
        ("0509" + MAX, ConnectionMaxStreamId(U64_MAX)),
        ("0602" + "0100", ConnectionStreamIdBlocked(0)),
        ("0609" + MAX, ConnectionStreamIdBlocked(U64_MAX)),
        (
            "1014" + "017b" + "ff" + "10" + b"an error message".hex(),
            StreamClose(123, 255, "an error message"),
        ),
        ("1104" + "017b" + "0100", StreamMoney(123, 0)),
        ("110a" + "017b" + JS, StreamMoney(123, JS_MAX)),
        ("110b" + "017b" + MAX, StreamMoney(123, U64_MAX)),
        ("1207" + "017b" + "0100" + "0201c8", StreamMaxMoney(123, 0, 456)),
        ("120e" + "017b" + MAX + "0201c8", StreamMaxMoney(123, U64_MAX, 456)),
        ("120e" + "017b" + "0201c8" + MAX, StreamMaxMoney(123, 456, U64_MAX)),
        ("1307" + "017b" + "0100" + "0201c8", StreamMoneyBlocked(123, 0, 456)),
        ("130e" + "017b" + MAX + "0201c8", StreamMoneyBlocked(123, U64_MAX, 456)),
        ("130e" + "017b" + "0201c8" + MAX, StreamMoneyBlocked(123, 456, U64_MAX)),
        ("140c" + "017b" + "0201c8" + "06" + b"foobar".hex(), StreamData(123, 456, b"foobar")),
        ("1405" + "017b" + "0100" + "00", StreamData(123, 0, b"")),
        ("140c" + "017b" + MAX + "00", StreamData(123, U64_MAX, b"")),
        ("1504" + "017b" + "0100", StreamMaxData(123, 0)),
        ("150b" + "017b" + MAX, StreamMaxData(123, U64_MAX)),
        ("1604" + "017b" + "0100", StreamDataBlocked(123, 0)),
        ("160b" + "017b" + MAX, StreamDataBlocked(123, U64_MAX)),
        ("1709" + "017b" + "06" + b"foobar".hex(), StreamReceipt(123, b"foobar")),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_frames_have_the_bytes_of_the_rfc(octets: str, frame: Frame) -> None:
    packet = StreamPacket(0, 12, 0, (frame,))

    assert encode(packet).hex() == "010c010001000101" + octets
    assert decode(encode(packet)) == packet


@pytest.mark.parametrize(
    ("octets", "frame"),
    [
        ("120f017b09010000000000000000" + "0201c8", StreamMaxMoney(123, U64_MAX, 456)),
        ("130f017b09010000000000000000" + "0201c8", StreamMoneyBlocked(123, U64_MAX, 456)),
    ],
)
def test_maximum_above_64_bits_is_read_as_the_largest(octets: str, frame: Frame) -> None:
    assert decode(bytes.fromhex("010c010001000101" + octets)).frames == (frame,)


def test_unknown_frames_and_padding_are_passed_over() -> None:
    unknown = "99" + "03" + "010203"
    money = "1104" + "0101" + "0101"

    packet = decode(bytes.fromhex("010c0101010001" + "02" + unknown + money + "000000"))

    assert packet == StreamPacket(1, 12, 0, (StreamMoney(1, 1),))


@pytest.mark.parametrize(
    "octets",
    [
        "",
        "020c010001000100",  # version 2
        "010c010001000101",  # a frame is missing
        "010c010001000108ffffffffffffffff",  # very many are
        "010c02000001000100",  # an integer with a leading zero
        "010c0001000100",  # an integer without digits
        "010c" + "09010000000000000000" + "01000100",  # a sequence above 64 bits
        "010c81010001000100",  # a length in the long form
        "010c010001000101" + "1103" + "0101" + "01",  # a frame that is cut short
        "010c010001000101" + "1105" + "0101" + "0101" + "00",  # a frame with something behind it
        "010c010001000101" + "0202" + "01" + "ff",  # not UTF-8
        "010c010001000101" + "110a" + "0101",  # a frame that is longer than the packet
    ],
)
def test_malformed_packet_is_refused(octets: str) -> None:
    with pytest.raises(InvalidPacket):
        decode(bytes.fromhex(octets))


U64 = st.integers(0, U64_MAX)
U8 = st.integers(0, 255)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
OCTETS = st.binary(max_size=200)
FRAMES = st.one_of(
    st.builds(ConnectionClose, U8, TEXT),
    st.builds(ConnectionNewAddress, TEXT),
    st.builds(ConnectionMaxData, U64),
    st.builds(ConnectionDataBlocked, U64),
    st.builds(ConnectionMaxStreamId, U64),
    st.builds(ConnectionStreamIdBlocked, U64),
    st.builds(ConnectionAssetDetails, TEXT, U8),
    st.builds(StreamClose, U64, U8, TEXT),
    st.builds(StreamMoney, U64, U64),
    st.builds(StreamMaxMoney, U64, U64, U64),
    st.builds(StreamMoneyBlocked, U64, U64, U64),
    st.builds(StreamData, U64, U64, OCTETS),
    st.builds(StreamMaxData, U64, U64),
    st.builds(StreamDataBlocked, U64, U64),
    st.builds(StreamReceipt, U64, OCTETS),
)
PACKETS = st.builds(
    StreamPacket,
    U64,
    st.sampled_from([12, 13, 14]),
    U64,
    st.lists(FRAMES, max_size=6).map(tuple),
)


@given(PACKETS, st.binary(max_size=20))
def test_every_packet_is_read_as_it_was_written(packet: StreamPacket, padding: bytes) -> None:
    assert decode(encode(packet) + padding) == packet


@given(st.binary(max_size=60))
def test_garbage_is_refused_or_read_to_what_writes_again(octets: bytes) -> None:
    try:
        packet = decode(b"\x01\x0c" + octets)
    except InvalidPacket:
        return
    assert decode(encode(packet)) == packet


@given(PACKETS, st.binary(min_size=12, max_size=12))
def test_a_sealed_packet_opens_to_the_same_packet(packet: StreamPacket, nonce: bytes) -> None:
    data = keys_of(SECRET).seal(packet, nonce)

    assert data[:12] == nonce
    assert len(data) == 12 + 16 + len(encode(packet))
    assert keys_of(SECRET).open(data) == packet


@given(PACKETS, st.data())
def test_changed_data_does_not_open(packet: StreamPacket, data: st.DataObject) -> None:
    sealed = bytearray(keys_of(SECRET).seal(packet, bytes(12)))
    sealed[data.draw(st.integers(0, len(sealed) - 1))] ^= 1 << data.draw(st.integers(0, 7))

    with pytest.raises(NotDecryptable):
        keys_of(SECRET).open(bytes(sealed))


@pytest.mark.parametrize("size", [0, 1, 27])
def test_data_without_room_for_nonce_and_tag_does_not_open(size: int) -> None:
    with pytest.raises(NotDecryptable):
        keys_of(SECRET).open(bytes(size))


def test_other_secret_does_not_open() -> None:
    with pytest.raises(NotDecryptable):
        keys_of(bytes(32)).open(keys_of(SECRET).seal(StreamPacket(1, 12, 0), bytes(12)))


def test_fulfillment_follows_from_secret_and_data() -> None:
    key = hmac.new(SECRET, b"ilp_stream_fulfillment", sha256).digest()

    assert keys_of(SECRET).fulfil(b"data") == hmac.new(key, b"data", sha256).digest()


def test_secrets_stay_out_of_logs() -> None:
    shown = repr(keys_of(SECRET))

    assert "cipher" not in shown and "fulfillment" not in shown


def test_packet_that_no_ilp_packet_has_room_for_is_refused() -> None:
    frames = (StreamData(1, 0, bytes(20000)), StreamData(1, 20000, bytes(20000)))

    with pytest.raises(InvalidPacket):
        keys_of(SECRET).seal(StreamPacket(1, 12, 0, frames), bytes(12))
