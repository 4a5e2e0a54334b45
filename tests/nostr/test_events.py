"""Events: strict structure, the id before the signature, and what tags say."""

from dataclasses import replace
from hashlib import sha256

import nostr_sdk
import orjson
import pytest
from coincurve import PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from farthing.nostr.events import (
    MAX_CREATED_AT,
    Event,
    InvalidEvent,
    compute_id,
    parse_event,
    public_key_of,
    sign_event,
    verify,
)
from farthing.nostr.kinds import Keeping, keeping

SECRET = bytes(range(1, 33))
# The field and the group order of secp256k1: the first numbers that are out of range.
FIELD = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEFFFFFC2F
ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141

# Everything but lone surrogates, with what needs escaping well represented.
TEXT = st.text(
    st.characters(exclude_categories=["Cs"])
    | st.sampled_from([*map(chr, range(0x20)), '"', "\\", "/", "\x7f", "\u2028", "😀", "\ufeff"]),
    max_size=60,
)
TAGS = st.lists(st.lists(TEXT, max_size=4), max_size=5)
KINDS = st.integers(0, 65535)
MOMENTS = st.integers(0, MAX_CREATED_AT)


def note(**changes: object) -> Event:
    given = {"kind": 1, "content": "hello", "created_at": 1_700_000_000, "tags": [["t", "a"]]}
    return sign_event(SECRET, **{**given, **changes})  # type: ignore[arg-type]


def wire(event: Event) -> dict[str, object]:
    return orjson.loads(event.to_json())


def naive_serialisation(event: Event) -> str:
    """NIP-01's own words, character by character."""
    short = {"\n": "\\n", '"': '\\"', "\\": "\\\\", "\r": "\\r", "\t": "\\t", "\b": "\\b",
             "\f": "\\f"}  # fmt: skip

    def text(value: str) -> str:
        escaped = ""
        for character in value:
            if character in short:
                escaped += short[character]
            elif ord(character) < 0x20:
                escaped += "\\u00" + hex(ord(character))[2:].rjust(2, "0")
            else:
                escaped += character
        return '"' + escaped + '"'

    tags = ",".join("[" + ",".join(text(part) for part in tag) + "]" for tag in event.tags)
    return (
        f"[0,{text(event.pubkey)},{event.created_at},{event.kind},[{tags}],{text(event.content)}]"
    )


class TestStructure:
    @pytest.mark.parametrize("value", [None, [], "event", 1, True, [["id", "x"]]])
    def test_an_event_is_an_object(self, value: object) -> None:
        with pytest.raises(InvalidEvent, match="event is not an object"):
            parse_event(value)

    @pytest.mark.parametrize("name", ["id", "pubkey", "sig"])
    @pytest.mark.parametrize(
        "spoil",
        [
            lambda _: None,
            lambda _: 5,
            lambda _: "",
            lambda value: value.upper().replace("0", "A"),
            lambda value: value[:-1],
            lambda value: value + "0",
            lambda value: value[:-1] + "\n",
            lambda value: value[:-1] + "g",
            lambda value: value[:-1] + "\u0660",  # a digit, but not a hexadecimal one
            lambda value: [value],
        ],
    )
    def test_keys_and_signature_are_lowercase_hexadecimal(self, name, spoil) -> None:
        spoiled = wire(note())
        spoiled[name] = spoil(spoiled[name])

        with pytest.raises(InvalidEvent, match=f"^{name} is not lowercase hexadecimal"):
            parse_event(spoiled)

    @pytest.mark.parametrize("name", ["created_at", "kind"])
    @pytest.mark.parametrize("value", [None, "1", 1.0, 1e3, True, [1], {}, 2.0**70])
    def test_numbers_are_integers(self, name: str, value: object) -> None:
        with pytest.raises(InvalidEvent, match=f"^{name} is not an integer$"):
            parse_event({**wire(note()), name: value})

    @pytest.mark.parametrize(
        ("name", "value"),
        [("created_at", -1), ("created_at", 2**40), ("kind", -1), ("kind", 65536)],
    )
    def test_numbers_are_in_range(self, name: str, value: int) -> None:
        with pytest.raises(InvalidEvent, match=f"^{name} is out of range$"):
            parse_event({**wire(note()), name: value})

    @pytest.mark.parametrize(
        ("name", "value"), [("created_at", 0), ("created_at", 2**40 - 1), ("kind", 65535)]
    )
    def test_the_edges_are_in_range(self, name: str, value: int) -> None:
        assert getattr(parse_event({**wire(note()), name: value}), name) == value

    @pytest.mark.parametrize(
        ("tags", "reason"),
        [
            (None, "tags is not an array"),
            ({}, "tags is not an array"),
            ("e", "tags is not an array"),
            ([{}], "a tag is not an array"),
            (["e"], "a tag is not an array"),
            ([["e"], None], "a tag is not an array"),
            ([["e", 1]], "a tag holds something other than strings"),
            ([["e", None]], "a tag holds something other than strings"),
            ([["e", ["x"]]], "a tag holds something other than strings"),
        ],
    )
    def test_tags_are_arrays_of_strings(self, tags: object, reason: str) -> None:
        with pytest.raises(InvalidEvent, match=f"^{reason}$"):
            parse_event({**wire(note()), "tags": tags})

    @pytest.mark.parametrize("content", [None, 1, [], {}, False])
    def test_content_is_a_string(self, content: object) -> None:
        with pytest.raises(InvalidEvent, match=r"^content is not a string$"):
            parse_event({**wire(note()), "content": content})

    @pytest.mark.parametrize(
        "name", ["id", "pubkey", "created_at", "kind", "tags", "content", "sig"]
    )
    def test_no_field_may_be_missing(self, name: str) -> None:
        incomplete = wire(note())
        del incomplete[name]

        with pytest.raises(InvalidEvent, match=f"^{name} is "):
            parse_event(incomplete)

    def test_fields_that_the_id_does_not_cover_are_dropped(self) -> None:
        event = note()

        assert parse_event({**wire(event), "ots": "x", "price": 5}) == event


class TestVerification:
    def test_a_signed_event_is_good(self) -> None:
        verify(note())

    @pytest.mark.parametrize(
        "change",
        [
            {"content": "altered"},
            {"created_at": 1_700_000_001},
            {"kind": 2},
            {"tags": ()},
            {"tags": (("t", "b"),)},
            {"pubkey": public_key_of(bytes([7] * 32))},
        ],
    )
    def test_what_the_id_covers_cannot_be_altered(self, change: dict[str, object]) -> None:
        # The signature still fits the claimed id: only the recomputed one tells.
        altered = replace(note(), **change)  # type: ignore[arg-type]

        with pytest.raises(InvalidEvent, match=r"^id does not match the event$"):
            verify(altered)

    def test_the_id_is_checked_before_the_signature(self) -> None:
        broken_twice = replace(note(), content="altered", sig="0" * 128)

        with pytest.raises(InvalidEvent, match=r"^id does not match"):
            verify(broken_twice)

    @pytest.mark.parametrize(
        "sig",
        [
            "0" * 128,
            "f" * 128,
            f"{FIELD:064x}" + "1".zfill(64),  # R is not a field element
            "1".zfill(64) + f"{ORDER:064x}",  # s is not below the order
            note(content="another").sig,
        ],
    )
    def test_a_wrong_signature_is_refused(self, sig: str) -> None:
        with pytest.raises(InvalidEvent, match=r"^signature does not match$"):
            verify(replace(note(), sig=sig))

    @pytest.mark.parametrize("bit", [0, 1, 255, 256, 511])
    def test_one_flipped_bit_is_enough(self, bit: int) -> None:
        event = note()
        flipped = f"{int(event.sig, 16) ^ (1 << bit):0128x}"

        with pytest.raises(InvalidEvent, match=r"^signature does not match$"):
            verify(replace(event, sig=flipped))

    @pytest.mark.parametrize("pubkey", ["0" * 64, "f" * 64, f"{FIELD:064x}", "5".zfill(64)])
    def test_a_key_off_the_curve_signs_nothing(self, pubkey: str) -> None:
        identity = compute_id(pubkey, 1, 1, [], "")
        signature = PrivateKey(SECRET).sign_schnorr(bytes.fromhex(identity)).hex()

        with pytest.raises(InvalidEvent, match=r"^signature does not match$"):
            verify(Event(identity, pubkey, 1, 1, (), "", signature))

    @pytest.mark.parametrize(
        "change", [{"content": "\ud800"}, {"tags": (("t", "\udfff"),)}, {"tags": (("\ud800",),)}]
    )
    def test_a_lone_surrogate_is_refused(self, change: dict[str, object]) -> None:
        with pytest.raises(InvalidEvent, match=r"^event is not valid UTF-8$"):
            verify(replace(note(), **change))  # type: ignore[arg-type]


class TestProperties:
    @given(kind=KINDS, content=TEXT, created_at=MOMENTS, tags=TAGS)
    def test_signed_written_read_and_verified(self, kind, content, created_at, tags) -> None:
        event = sign_event(SECRET, kind=kind, content=content, created_at=created_at, tags=tags)

        read = parse_event(orjson.loads(event.to_json()))

        verify(read)
        assert read == event
        assert read.content == content

    @given(kind=KINDS, content=TEXT, created_at=MOMENTS, tags=TAGS)
    def test_the_id_is_that_of_the_naive_serialisation(
        self, kind, content, created_at, tags
    ) -> None:
        event = sign_event(SECRET, kind=kind, content=content, created_at=created_at, tags=tags)

        assert event.id == sha256(naive_serialisation(event).encode()).hexdigest()

    @given(kind=KINDS, content=TEXT, created_at=MOMENTS, tags=TAGS)
    def test_rust_nostr_accepts_what_we_sign(self, kind, content, created_at, tags) -> None:
        named = [[name or "x", *rest] for name, *rest in filter(None, tags)]
        event = sign_event(SECRET, kind=kind, content=content, created_at=created_at, tags=named)

        theirs = nostr_sdk.Event.from_json(event.to_json())

        assert theirs.verify()
        assert theirs.id().to_hex() == event.id

    @given(kind=KINDS, content=TEXT, created_at=MOMENTS, tags=TAGS)
    def test_we_accept_what_rust_nostr_signs(self, kind, content, created_at, tags) -> None:
        named = [[name or "x", *rest] for name, *rest in filter(None, tags)]
        builder = (
            nostr_sdk.EventBuilder(nostr_sdk.Kind(kind), content)
            .tags([nostr_sdk.Tag.parse(tag) for tag in named])
            .custom_created_at(nostr_sdk.Timestamp.from_secs(created_at))
        )
        theirs = builder.finalize(nostr_sdk.Keys.parse(SECRET.hex()))

        ours = parse_event(orjson.loads(theirs.as_json()))

        verify(ours)
        assert ours.id == compute_id(ours.pubkey, created_at, kind, named, content)


class TestTags:
    @pytest.mark.parametrize(
        ("kind", "tags", "suffix"),
        [
            (1, [["d", "x"]], None),
            (20000, [["d", "x"]], None),
            (0, [["d", "x"]], ""),
            (10002, [], ""),
            (30023, [["d", "x"]], "x"),
            (30023, [["e", "y"], ["d", "x"], ["d", "z"]], "x"),
            (30023, [["d", "a:b#c"]], "a:b#c"),
            (30023, [["d"]], ""),
            (30023, [], ""),
        ],
    )
    def test_only_replaceable_kinds_have_an_address(
        self, kind: int, tags: list[list[str]], suffix: str | None
    ) -> None:
        event = note(kind=kind, tags=tags)

        expected = None if suffix is None else f"{kind}:{event.pubkey}:{suffix}"
        assert event.address == expected

    @pytest.mark.parametrize(
        ("tags", "expiration"),
        [
            ([], None),
            ([["expiration", "1700000000"]], 1_700_000_000),
            ([["expiration", "0"]], 0),
            ([["expiration"]], None),
            ([["expiration", ""]], None),
            ([["expiration", "soon"]], None),
            ([["expiration", "-5"]], None),
            ([["expiration", "1.5"]], None),
            ([["expiration", "\u0661"]], None),
            ([["expiration", "9" * 15]], 999_999_999_999_999),
            ([["expiration", "9" * 16]], None),
            ([["expiration", "5"], ["expiration", "9"]], 5),
        ],
    )
    def test_only_a_decimal_expiration_counts(
        self, tags: list[list[str]], expiration: int | None
    ) -> None:
        assert note(tags=tags).expiration == expiration

    @pytest.mark.parametrize(
        ("tags", "protected"),
        [([["-"]], True), ([["e", "x"], ["-", "y"]], True), ([["e", "-"]], False), ([[]], False)],
    )
    def test_a_dash_tag_protects_an_event(self, tags: list[list[str]], protected: bool) -> None:
        assert note(tags=tags).is_protected is protected

    def test_single_letters_with_a_value_are_indexed(self) -> None:
        tags = [["e", "1", "relay"], ["E", "2"], ["t"], ["tt", "3"], ["-", "4"], ["é", "5"], [],
                ["t", ""]]  # fmt: skip

        indexed = list(note(tags=tags).indexed_tags())

        assert indexed == [("e", "1"), ("E", "2"), ("t", "")]

    def test_values_come_from_tags_that_have_one(self) -> None:
        event = note(tags=[["e", "1"], ["p", "2"], ["e"], ["e", "3", "4"]])

        assert list(event.values("e")) == ["1", "3"]
        assert event.first_value("e") == "1"
        assert event.first_value("x") is None


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ([0, 3, 10000, 10032, 19999], Keeping.REPLACEABLE),
        ([20000, 22242, 29999], Keeping.EPHEMERAL),
        ([30000, 30023, 39999], Keeping.ADDRESSABLE),
        ([1, 2, 4, 5, 44, 1059, 9999, 40000, 65535], Keeping.REGULAR),
    ],
)
def test_the_kind_decides_how_an_event_is_kept(kinds: list[int], expected: Keeping) -> None:
    assert {keeping(kind) for kind in kinds} == {expected}
