"""NIP-19: the NIP's examples, round trips, and text that is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farthing.nostr.nip19 import (
    Entity,
    InvalidNip19,
    Naddr,
    Nevent,
    Note,
    Nprofile,
    Npub,
    Nsec,
    _checksum,
    _regroup,
    _text,
    decode,
    encode,
    parse_public_key,
)

KEY = "3bf0c63fcb93463407af97a5e5ee64fa883d107ef9e558472c4eb9aaaefa459d"
NPUB = "npub180cvv07tjdrrgpa0j7j7tmnyl2yr6yr7l8j4s3evf6u64th6gkwsyjh6w6"
NPROFILE = (
    "nprofile1qqsrhuxx8l9ex335q7he0f09aej04zpazpl0ne2cgukyawd24mayt8gpp4mhxue69uhhytnc9e3k7mgpz4m"
    "hxue69uhkg6nzv9ejuumpv34kytnrdaksjlyr9p"
)

HEX = st.binary(min_size=32, max_size=32).map(bytes.hex)
RELAYS = st.lists(st.sampled_from(["", "wss://r.x.com", "ws://[::1]:80/\u00e4"])).map(tuple)
KINDS = st.integers(0, 65535)
IDENTIFIERS = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
ENTITIES = st.one_of(
    st.builds(Npub, HEX),
    st.builds(Nsec, HEX),
    st.builds(Note, HEX),
    st.builds(Nprofile, HEX, RELAYS),
    st.builds(Nevent, HEX, RELAYS, st.none() | HEX, st.none() | KINDS),
    st.builds(Naddr, IDENTIFIERS, HEX, KINDS, RELAYS),
)


@pytest.mark.parametrize(
    ("text", "entity"),
    [
        (NPUB, Npub(KEY)),
        (
            "npub10elfcs4fr0l0r8af98jlmgdh9c8tcxjvz9qkw038js35mp4dma8qzvjptg",
            Npub("7e7e9c42a91bfef19fa929e5fda1b72e0ebc1a4c1141673e2794234d86addf4e"),
        ),
        (
            "nsec1vl029mgpspedva04g90vltkh6fvh240zqtv9k0t9af8935ke9laqsnlfe5",
            Nsec("67dea2ed018072d675f5415ecfaed7d2597555e202d85b3d65ea4e58d2d92ffa"),
        ),
        (NPROFILE, Nprofile(KEY, ("wss://r.x.com", "wss://djbas.sadkb.com"))),
    ],
)
def test_examples_of_the_nip_are_read_and_written(text: str, entity: Entity) -> None:
    assert decode(text) == entity
    assert encode(entity) == text


@given(ENTITIES)
def test_every_entity_is_read_as_it_was_written(entity: Entity) -> None:
    text = encode(entity)

    for decoded in (decode(text), decode(text.upper())):
        assert decoded == entity
        assert type(decoded) is type(entity)


@given(ENTITIES, st.data())
def test_one_wrong_letter_is_noticed(entity: Entity, data: st.DataObject) -> None:
    text = encode(entity)
    at = data.draw(st.integers(text.index("1") + 1, len(text) - 1))
    other = data.draw(st.sampled_from([each for each in "qpzry9x8gf2tvdw0" if each != text[at]]))

    with pytest.raises(InvalidNip19):
        decode(text[:at] + other + text[at + 1 :])


@given(st.text(max_size=80))
def test_garbage_is_refused(text: str) -> None:
    with pytest.raises(InvalidNip19):
        decode(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "npub",
        "npub1",
        NPUB[:-1],
        NPUB.replace("npub", "Npub"),
        NPUB.replace("npub", "nsec"),
        NPUB.upper().replace("K", "\N{KELVIN SIGN}", 1),
        "bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4",
        "A12UEL5L",  # bech32, but no entity
        "x" * 5001,
    ],
)
def test_what_is_no_entity_is_refused(text: str) -> None:
    with pytest.raises(InvalidNip19):
        decode(text)


def test_tlv_of_unknown_types_is_passed_over() -> None:
    # An nprofile with the item 0x99 between key and relay.
    octets = b"\x00\x20" + bytes.fromhex(KEY) + b"\x99\x01x" + b"\x01\x06wss://"

    assert decode(_text("nprofile", octets)) == Nprofile(KEY, ("wss://",))


@pytest.mark.parametrize(
    ("prefix", "octets"),
    [
        ("npub", bytes(31)),
        ("npub", bytes(33)),
        ("nprofile", b""),
        ("nprofile", b"\x00"),
        ("nprofile", b"\x00\x20" + bytes(31)),
        ("nprofile", b"\x00\x1f" + bytes(31)),
        ("nevent", b"\x00\x20" + bytes(32) + b"\x03\x02\x00\x01"),
        ("naddr", b"\x00\x00"),
        ("naddr", b"\x00\x00" + b"\x02\x20" + bytes(32)),
        ("naddr", b"\x00\x00" + b"\x02\x20" + bytes(32) + b"\x03\x04\x00\x01\x00\x00"),
        ("naddr", b"\x00\x01\xff" + b"\x02\x20" + bytes(32) + b"\x03\x04\x00\x00\x00\x01"),
    ],
)
def test_contents_that_do_not_fit_the_prefix_are_refused(prefix: str, octets: bytes) -> None:
    with pytest.raises(InvalidNip19):
        decode(_text(prefix, octets))


def test_bits_left_over_are_refused() -> None:
    digits = _regroup(bytes.fromhex(KEY), 8, 5, pad=True)
    letters = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"

    def text(digits: list[int]) -> str:
        return "npub1" + "".join(letters[each] for each in digits + _checksum("npub", digits))

    assert decode(text(digits)) == Npub(KEY)
    with pytest.raises(InvalidNip19, match="left over"):
        decode(text([*digits[:-1], digits[-1] | 1]))
    with pytest.raises(InvalidNip19, match="left over"):
        decode(text([*_regroup(bytes(33), 8, 5, pad=True), 0]))


@pytest.mark.parametrize(
    "entity",
    [
        Npub(KEY[:-1]),
        Npub(KEY.upper()),
        Naddr("x" * 256, KEY, 1),
        Naddr("\ud800", KEY, 1),
        Naddr("", KEY, 65536),
        Nprofile(KEY, ("x" * 255,) * 20),
    ],
)
def test_value_that_cannot_be_written_is_refused(entity: Entity) -> None:
    with pytest.raises(InvalidNip19):
        encode(entity)


@pytest.mark.parametrize("text", [KEY, KEY.upper(), NPUB, NPUB.upper(), NPROFILE])
def test_public_key_is_taken_in_any_form(text: str) -> None:
    assert parse_public_key(text) == KEY


@pytest.mark.parametrize("text", ["", KEY[:-1], encode(Note(KEY)), encode(Nsec(KEY))])
def test_what_is_no_public_key_is_refused(text: str) -> None:
    with pytest.raises(InvalidNip19):
        parse_public_key(text)


def test_secret_key_stays_out_of_logs() -> None:
    assert KEY not in repr(Nsec(KEY))
