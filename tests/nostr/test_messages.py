"""Frames: what is understood, what is not, and how answers are written."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farthing.nostr import messages
from farthing.nostr.messages import (
    ClientMessage,
    InvalidMessage,
    Prefix,
    Refused,
    Verb,
    check_subscription_id,
    parse_message,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NUMBERS = st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


class TestParsing:
    @pytest.mark.parametrize("verb", Verb)
    def test_a_message_of_each_verb_is_read(self, verb: Verb) -> None:
        message = parse_message(f'["{verb}","x",{{"kinds":[1]}}]')

        assert message == ClientMessage(verb, ["x", {"kinds": [1]}])

    def test_a_message_may_be_bytes_with_white_space(self) -> None:
        assert parse_message(b' [ "CLOSE" ,\n"x" ] ') == ClientMessage(Verb.CLOSE, ["x"])

    @pytest.mark.parametrize(
        "frame",
        [
            "",
            " ",
            "EVENT",
            "[",
            '["EVENT",]',
            '["EVENT"] x',
            "['EVENT']",
            '["REQ","x",{"since":NaN}]',
            '["REQ","x",{"since":01}]',
            '["REQ","\\ud800",{}]',  # a lone surrogate, escaped
            '["REQ","\ud800",{}]',  # and as it is
            b'["REQ","\xff",{}]',
            '["REQ","a\nb",{}]',  # a bare control character
            "[" * 5000 + "]" * 5000,
            '["EVENT",' + '{"a":' * 5000 + "1" + "}" * 5000 + "]",
        ],
    )
    def test_a_frame_that_is_not_json_is_refused(self, frame: str | bytes) -> None:
        with pytest.raises(InvalidMessage, match=r"^expected JSON$"):
            parse_message(frame)

    @pytest.mark.parametrize(
        "frame", ["null", "{}", '"EVENT"', "1", "[]", "[null]", "[1]", '[["EVENT"]]', "true"]
    )
    def test_json_that_is_no_message_is_refused(self, frame: str) -> None:
        with pytest.raises(InvalidMessage, match=r"^expected an array that starts with a verb$"):
            parse_message(frame)

    @pytest.mark.parametrize("verb", ["", "event", "NOTICE", "EOSE", "EVENT ", "REQ\\u0000"])
    def test_an_unknown_verb_is_named(self, verb: str) -> None:
        with pytest.raises(InvalidMessage, match=r"^unknown verb '"):
            parse_message(f'["{verb}"]')

    def test_a_long_verb_is_named_in_part(self) -> None:
        with pytest.raises(InvalidMessage) as refused:
            parse_message(f'["{"X" * 9999}"]')

        assert len(str(refused.value)) < 60

    def test_huge_numbers_are_not_integers(self) -> None:
        message = parse_message(f'["COUNT",{2**64 - 1},{2**64}]')

        assert message.parts == [2**64 - 1, 2.0**64]
        assert [type(part) for part in message.parts] == [int, float]

    def test_numbers_beyond_all_floats_are_not_json(self) -> None:
        with pytest.raises(InvalidMessage, match=r"^expected JSON$"):
            parse_message(f'["COUNT",{"9" * 400}]')

    @given(parts=st.lists(JSON, max_size=3))
    def test_what_follows_the_verb_is_left_to_it(self, parts: list[object]) -> None:
        assert parse_message(orjson.dumps(["EVENT", *parts])).parts == parts

    @given(frame=st.text() | st.binary())
    def test_any_other_frame_is_refused(self, frame: str | bytes) -> None:
        with pytest.raises(InvalidMessage):
            parse_message(frame)


class TestSubscriptionId:
    def test_the_subscription_id_is_the_first_part(self) -> None:
        assert ClientMessage(Verb.REQ, ["x", {}]).subscription_id() == "x"

    @pytest.mark.parametrize("parts", [[], [None], [1], [{}], [["x"]]])
    def test_a_message_without_a_text_as_id_is_invalid(self, parts: list[object]) -> None:
        with pytest.raises(InvalidMessage, match=r"^REQ without a subscription id$"):
            ClientMessage(Verb.REQ, parts).subscription_id()

    @pytest.mark.parametrize("subscription_id", ["x", "#", "é" * 64, "x" * 64])
    def test_an_id_of_1_to_64_characters_is_accepted(self, subscription_id: str) -> None:
        check_subscription_id(subscription_id)

    @pytest.mark.parametrize("subscription_id", ["", "x" * 65])
    def test_an_id_of_another_length_is_refused(self, subscription_id: str) -> None:
        with pytest.raises(Refused, match=r"^invalid: subscription id is not 1-64 characters$"):
            check_subscription_id(subscription_id)


class TestFrames:
    ID = "a" * 64

    @pytest.mark.parametrize(
        ("frame", "expected"),
        [
            (messages.event_frame("x", '{"id":1}'), '["EVENT","x",{"id":1}]'),
            (messages.ok(ID, True), f'["OK","{ID}",true,""]'),
            (messages.ok(ID, False, "pow: more"), f'["OK","{ID}",false,"pow: more"]'),
            (messages.eose("x"), '["EOSE","x"]'),
            (messages.closed("x", "error: y"), '["CLOSED","x","error: y"]'),
            (messages.notice("hello"), '["NOTICE","hello"]'),
            (messages.auth_challenge("c"), '["AUTH","c"]'),
            (messages.count("x", 5, approximate=False), '["COUNT","x",{"count":5}]'),
            (
                messages.count("x", 5, approximate=True),
                '["COUNT","x",{"count":5,"approximate":true}]',
            ),
        ],
    )
    def test_each_frame_is_written_as_its_nip_says(self, frame: str, expected: str) -> None:
        assert frame == expected

    @given(subscription_id=TEXT)
    def test_any_subscription_id_survives(self, subscription_id: str) -> None:
        assert orjson.loads(messages.event_frame(subscription_id, "{}"))[1] == subscription_id
        assert orjson.loads(messages.eose(subscription_id))[1] == subscription_id


def test_prefixes_are_those_of_the_nips() -> None:
    assert set(Prefix) == {
        "duplicate", "pow", "blocked", "rate-limited", "invalid", "restricted", "mute", "error",
        "auth-required",
    }  # fmt: skip


def test_a_refusal_starts_with_its_prefix() -> None:
    refused = Refused(Prefix.AUTH_REQUIRED, "who are you?")

    assert str(refused) == "auth-required: who are you?"
    assert refused.prefix is Prefix.AUTH_REQUIRED
