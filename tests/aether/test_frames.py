"""Frames: the vectors, the `flatbuffers` library as oracle in both directions, and any octets."""

import struct
from typing import Any

import flatbuffers
import pytest
from flatbuffers import encode as raw
from flatbuffers import number_types
from flatbuffers.table import Table
from hypothesis import given, settings
from hypothesis import strategies as st

from farthing.aether import frames
from farthing.aether.frames import Frame, InvalidFrame, MessageType
from tests.aether.known import VECTORS

FRAMES = VECTORS["frames"]
BROKEN_AS_FRAMES = sorted(
    set(FRAMES["refused"]) - {"payload is no JSON", "type and payload disagree"}
)


def library_encode(
    kind: int, payload: bytes | None, *, force: bool = False, swap: bool = False
) -> bytes:
    """`force` writes out a default; `swap` puts the fields in the other order."""
    builder = flatbuffers.Builder(64)
    vector = None if payload is None else builder.CreateByteVector(payload)
    builder.ForceDefaults(force)
    builder.StartObject(2)

    def add_type() -> None:
        builder.PrependUint8Slot(0, kind, 0)

    def add_payload() -> None:
        if vector is not None:
            builder.PrependUOffsetTRelativeSlot(1, vector, 0)

    for add in (add_payload, add_type) if swap else (add_type, add_payload):
        add()
    builder.Finish(builder.EndObject())
    return bytes(builder.Output())


def library_decode(octets: bytes) -> tuple[int, bytes]:
    """What the library reads; it checks nothing."""
    root = raw.Get(number_types.UOffsetTFlags.packer_type, octets, 0)
    table = Table(bytearray(octets), root)
    at = table.Offset(4)
    kind = table.Get(number_types.Uint8Flags, at + root) if at else 0
    at = table.Offset(6)
    start, size = table.Vector(at), table.VectorLen(at)
    return kind, octets[start : start + size]


@pytest.mark.parametrize("vector", FRAMES["messages"], ids=lambda vector: vector["json"][:30])
def test_frames_of_the_vectors_are_read_and_written_as_written(vector: dict[str, Any]) -> None:
    plain, prefixed = bytes.fromhex(vector["flatbuffer"]), bytes.fromhex(vector["prefixed"])
    expected = Frame(MessageType(vector["number"]), vector["json"].encode())

    assert expected.type.word == vector["type"]
    assert frames.decode(plain) == expected
    assert frames.decode(prefixed) == Frame(expected.type, expected.payload, prefixed=True)
    assert frames.from_text(vector["base64"]) == plain
    assert frames.to_text(plain) == vector["base64"]


@pytest.mark.parametrize("name", FRAMES["read as HELLO"])
def test_an_absent_type_is_hello(name: str) -> None:
    frame = frames.decode(bytes.fromhex(FRAMES["read as HELLO"][name]))

    assert frame.type is MessageType.HELLO
    assert frame.payload == FRAMES["messages"][0]["json"].encode()


@pytest.mark.parametrize("name", BROKEN_AS_FRAMES)
def test_broken_frames_are_refused(name: str) -> None:
    octets = bytes.fromhex(FRAMES["refused"][name])

    with pytest.raises(InvalidFrame):
        frames.decode(octets)
    with pytest.raises(InvalidFrame):
        frames.decode(struct.pack(">I", len(octets)) + octets)


@settings(max_examples=100)
@given(st.sampled_from(MessageType), st.binary(max_size=70), st.booleans())
def test_what_we_write_the_library_reads(kind: MessageType, payload: bytes, prefixed: bool) -> None:
    frame = Frame(kind, payload, prefixed)
    octets = frames.encode(frame)

    assert frames.decode(octets) == frame
    assert library_decode(octets[4:] if prefixed else octets) == (kind, payload)


@settings(max_examples=100)
@given(st.sampled_from(MessageType), st.binary(max_size=70), st.booleans(), st.booleans())
def test_what_the_library_writes_we_read(
    kind: MessageType, payload: bytes, force: bool, swap: bool
) -> None:
    octets = library_encode(kind, payload, force=force, swap=swap)

    assert frames.decode(octets) == Frame(kind, payload)
    prefix = struct.pack(">I", len(octets))
    assert frames.decode(prefix + octets) == Frame(kind, payload, prefixed=True)


def test_a_frame_without_payload_or_of_an_unknown_type_is_refused() -> None:
    for octets in (library_encode(6, None), library_encode(9, b"{}"), library_encode(255, b"{}")):
        with pytest.raises(InvalidFrame):
            frames.decode(octets)


def layout(
    *, table: int = 12, vtable_size: int = 8, table_size: int = 12, type_at: int = 11,
    payload_at: int = 4, to_vtable: int = 8, to_payload: int = 8, size: int = 2, tail: bytes = b"",
) -> bytes:  # fmt: skip
    """A frame with every number open; as it stands it is an ACK with the payload `{}`."""
    head = struct.pack(
        "<I HHHH iI", table, vtable_size, table_size, type_at, payload_at, to_vtable, to_payload
    )
    return head + struct.pack("<3xBI", 6, size) + b"{}" + tail


def test_the_numbers_of_a_sound_frame() -> None:
    assert frames.decode(layout()) == Frame(MessageType.ACK, b"{}")
    assert frames.decode(layout(tail=b"more")) == Frame(MessageType.ACK, b"{}")
    assert frames.decode(layout(type_at=0)) == Frame(MessageType.HELLO, b"{}")


@pytest.mark.parametrize(
    "numbers",
    [
        {"table": 27},
        {"table": 30},
        {"table": 2**32 - 1},
        {"vtable_size": 0},
        {"vtable_size": 3},
        {"vtable_size": 4},  # names no payload
        {"vtable_size": 6},
        {"vtable_size": 27},
        {"vtable_size": 65535},
        {"table_size": 0},
        {"table_size": 3},
        {"table_size": 11},  # the type lies behind its end
        {"table_size": 19},
        {"table_size": 65535},
        {"type_at": 1},  # inside the distance to the vtable
        {"type_at": 12},
        {"payload_at": 0},
        {"payload_at": 3},
        {"payload_at": 9},
        {"payload_at": 12},
        {"to_vtable": -2147483648},
        {"to_vtable": 2147483647},
        {"to_vtable": 13, "tail": struct.pack("<HHHH", 8, 12, 11, 4)},  # before the start
        # As many before the start as the end has room for a vtable.
        {"to_vtable": 20, "tail": struct.pack("<HHHH", 8, 12, 11, 4)},
        {"to_payload": 11},
        {"to_payload": 2**32 - 1},
        {"size": 3},
        {"size": 2**32 - 1},
    ],
    ids=repr,
)
def test_every_number_of_a_frame_is_checked(numbers: dict[str, Any]) -> None:
    with pytest.raises(InvalidFrame):
        frames.decode(layout(**numbers))


@settings(max_examples=300)
@given(st.data(), st.sampled_from(MessageType), st.binary(max_size=20))
def test_what_we_read_the_library_reads_alike(
    data: st.DataObject, kind: MessageType, payload: bytes
) -> None:
    """Octets are exchanged in a sound frame: what still passes our checks means the same."""
    octets = bytearray(library_encode(kind, payload))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(octets) - 1))
        octets[at] = data.draw(st.sampled_from([0, 1, 4, 6, 8, 11, 12, 0x7F, 0xFF]))
    try:
        frame = frames.decode(bytes(octets))
    except InvalidFrame:
        return
    assert library_decode(bytes(octets)[4 * frame.prefixed :]) == (frame.type, frame.payload)


@settings(max_examples=300)
@given(st.binary(max_size=80))
def test_any_octets_are_a_frame_or_refused(octets: bytes) -> None:
    try:
        frames.decode(octets)
    except InvalidFrame:
        return


@pytest.mark.parametrize("text", ["", "nonsense", "!", "AAAA\n", "žlu", "A", "hello there"])
def test_text_that_is_no_base64_of_a_frame_is_refused(text: str) -> None:
    with pytest.raises(InvalidFrame):
        frames.decode(frames.from_text(text))
