"""Messages: each form reads alike and is answered in kind; shapes are refused with a reason."""

from typing import Any

import orjson
import pytest

from farthing.aether import frames, messages, noise
from farthing.aether.errors import AetherError, Code, InvalidEvent, InvalidMessage, NotAether
from farthing.aether.frames import Frame, MessageType
from farthing.aether.messages import Envelope, Format, Hello, Outgoing
from tests.aether.known import EVENTS, VECTORS

FRAMES = VECTORS["frames"]
NOISE_KEY = VECTORS["keys"]["relay_noise_public"]
FORMS = {
    "json text": Envelope(Format.JSON),
    "json octets": Envelope(Format.JSON, binary=True),
    "base64": Envelope(Format.FLATBUFFERS),
    "binary": Envelope(Format.FLATBUFFERS, binary=True),
    "binary with length": Envelope(Format.FLATBUFFERS, binary=True, prefixed=True),
    "base64 with length": Envelope(Format.FLATBUFFERS, prefixed=True),
}


@pytest.mark.parametrize("vector", FRAMES["messages"], ids=lambda vector: vector["json"][:30])
def test_a_message_reads_alike_in_every_form(vector: dict[str, Any]) -> None:
    flatbuffer, prefixed = (bytes.fromhex(vector[name]) for name in ("flatbuffer", "prefixed"))
    came = {
        "json text": vector["json"],
        "json octets": vector["json"].encode(),
        "base64": vector["base64"],
        "binary": flatbuffer,
        "binary with length": prefixed,
        "base64 with length": frames.to_text(prefixed),
    }

    for form, frame in came.items():
        message = messages.read(frame)
        assert message.type.word == vector["type"]
        assert message.body == orjson.loads(vector["json"])
        assert message.octets == vector["json"].encode()
        assert message.envelope == FORMS[form]


@pytest.mark.parametrize("form", FORMS)
def test_answers_go_in_the_form_of_the_question(form: str) -> None:
    answer = messages.ack(sub_id="s")

    written = messages.write(answer, FORMS[form])
    message = messages.read(written)

    assert isinstance(written, bytes) is FORMS[form].binary
    assert message.envelope == FORMS[form]
    assert message.body == {"type": "ack", "sub_id": "s"}


@pytest.mark.parametrize("form", FORMS)
def test_noise_payloads_pass_in_every_form(form: str) -> None:
    payload = bytes.fromhex(VECTORS["noise"]["message_1"])

    message = messages.read(messages.write(messages.noise_message(payload), FORMS[form]))

    assert (message.type, message.octets) == (MessageType.NOISE, payload)


def test_noise_in_json_is_hexadecimal() -> None:
    written = messages.write(messages.noise_message(b"\x00\xff"), Envelope(Format.JSON))

    assert written == '{"type":"noise","payload_hex":"00ff"}'


def test_the_noise_frame_of_the_vectors_is_read() -> None:
    message = messages.read(bytes.fromhex(VECTORS["noise"]["message_1_frame"]))

    assert message.octets.hex() == VECTORS["noise"]["message_1"]


@pytest.mark.parametrize("name", FRAMES["refused"])
def test_a_broken_frame_is_an_invalid_message(name: str) -> None:
    octets = bytes.fromhex(FRAMES["refused"][name])

    for frame in (octets, frames.to_text(octets)):
        with pytest.raises(InvalidMessage) as caught:
            messages.read(frame)
        assert caught.value.code is Code.INVALID_MESSAGE


@pytest.mark.parametrize(
    "frame",
    [
        "",
        "nonsense",
        "[]",
        '"hello"',
        "{}",
        "{",
        '{"type":5}',
        '{"type":"HELLO"}',
        '{"type":"gossip"}',
        '{"type":"noise"}',
        '{"type":"noise","payload_hex":"0"}',
        '{"type":"noise","payload_hex":"FF"}',
        '{"type":"noise","payload_hex":5}',
        '{"type":"ack","x":"\ud800"}',
        b"",
        b"{",
        b'{"type":"\xff"}',
        b"[]",
        frames.encode(Frame(MessageType.ACK, b"")),
        frames.encode(Frame(MessageType.ACK, b"[]")),
        frames.encode(Frame(MessageType.ACK, b'{"type":["ack"]}')),
        frames.encode(Frame(MessageType.ACK, b'{"type":"' + b"x" * 999 + b'"}')),
    ],
    ids=lambda frame: repr(frame)[:40],
)
def test_what_is_no_message_is_refused(frame: str | bytes) -> None:
    with pytest.raises(InvalidMessage):
        messages.read(frame)


@pytest.mark.parametrize(
    ("frame", "is_aether"),
    [
        ('{"type":"gossip"}', True),
        ('{"type":"noise"}', True),
        ('{"type":5}', False),
        ('{"kind":1}', False),
        ("{", False),
        ("hello", False),
        ("AAAA", False),
        (frames.to_text(frames.encode(Frame(MessageType.ACK, b"no JSON"))), True),
        (frames.to_text(frames.encode(Frame(MessageType.ACK, b'{"type":"hello"}'))), True),
    ],
)
def test_what_is_wrong_is_told_from_what_is_no_aether(frame: str, is_aether: bool) -> None:
    """On an unmarked socket the former gets an error, the latter a NOTICE."""
    with pytest.raises(InvalidMessage) as caught:
        messages.read(frame)

    assert isinstance(caught.value, NotAether) is not is_aether


_ID = "ab" * 32


@pytest.mark.parametrize("value", ['"\\ud800"', "1e999", '"\\udc00x"'])
def test_json_that_no_text_or_number_can_hold_is_refused_by_id(value: str) -> None:
    """The parser refuses it although its grammar is JSON's."""
    event = f'{{"type":"publish","event":{{"event_id":"{_ID}","content":{value}}}}}'
    filters = f'{{"filters":[{{"#t":[{value}]}}],"sub_id":"s","type":"subscribe"}}'
    nameless = f'{{"type":"unsubscribe","sub_id":{value}}}'
    for frame, code, event_id, sub_id in (
        (event, Code.INVALID_EVENT, _ID, None),
        (filters, Code.INVALID_MESSAGE, None, "s"),
        (nameless, Code.INVALID_MESSAGE, None, None),
    ):
        for each in (frame, frame.encode()):
            with pytest.raises(AetherError) as caught:
                messages.read(each)
            assert not isinstance(caught.value, NotAether)
            found = caught.value.code, caught.value.event_id, caught.value.sub_id
            assert found == (code, event_id, sub_id)


@pytest.mark.parametrize("prefixed", [False, True])
@pytest.mark.parametrize("binary", [False, True])
def test_the_answer_to_an_unreadable_frame_has_its_form(prefixed: bool, binary: bool) -> None:
    octets = frames.encode(Frame(MessageType.ACK, b"no JSON", prefixed))
    frame = octets if binary else frames.to_text(octets)
    found = messages.probable_envelope(frame)
    assert found == Envelope(Format.FLATBUFFERS, binary, prefixed)


def test_nostr_is_what_starts_with_a_bracket() -> None:
    assert messages.is_nostr('["REQ","s",{}]')
    assert messages.is_nostr(' \n["REQ"]')
    assert not messages.is_nostr('{"type":"hello"}')
    assert not messages.is_nostr("DAAAAA==")
    assert not messages.is_nostr("")


# HELLO and WELCOME.


def welcome(
    hello: dict[str, Any],
    envelope: Envelope = FORMS["json text"],
    *,
    binary: bool = True,
    policy: noise.Policy = noise.Policy.OPTIONAL,
) -> dict[str, Any]:
    answer = messages.negotiate(
        messages.parse_hello(hello), envelope, binary=binary, policy=policy, noise_pubkey=NOISE_KEY
    )
    body: dict[str, Any] = orjson.loads(answer.message().octets)
    return body


def test_the_vectors_hello_gets_the_vectors_welcome() -> None:
    hello = messages.parse_hello(orjson.loads(VECTORS["noise"]["hello"]))
    assert hello == Hello(
        1, ("flatbuffers", "json"), True, VECTORS["noise"]["client_static_public"]
    )

    answer = messages.negotiate(
        hello,
        FORMS["json text"],
        binary=True,
        policy=noise.Policy.OPTIONAL,
        noise_pubkey=NOISE_KEY,
    )

    assert answer.message() == Outgoing(MessageType.WELCOME, VECTORS["noise"]["welcome"].encode())


@pytest.mark.parametrize(
    ("formats", "form", "binary", "expected"),
    [
        (["flatbuffers", "json"], "json text", True, "flatbuffers"),
        (["json", "flatbuffers"], "json text", True, "flatbuffers"),
        (["flatbuffers"], "json text", False, "json"),
        (["flatbuffers"], "base64", False, "flatbuffers"),
        (["json"], "binary", True, "json"),
        (["cbor"], "json text", True, "json"),
        ([], "json text", True, "json"),
    ],
)
def test_flatbuffers_where_they_are_listed_and_can_pass(
    formats: list[str], form: str, binary: bool, expected: str
) -> None:
    hello = {"version": 1, "formats": formats}

    assert welcome(hello, FORMS[form], binary=binary)["format"] == expected


@pytest.mark.parametrize("version", [1, 2, 99])
def test_any_version_is_answered_with_one(version: int) -> None:
    assert welcome({"version": version})["version"] == 1


@pytest.mark.parametrize(
    ("policy", "wish", "required"),
    [
        (noise.Policy.OPTIONAL, {}, False),
        (noise.Policy.OPTIONAL, {"required": False}, False),
        (noise.Policy.OPTIONAL, {"required": True}, True),
        (noise.Policy.REQUIRED, {}, True),
        (noise.Policy.REQUIRED, {"required": False}, True),
    ],
)
def test_noise_is_offered_and_required_by_either_side(
    policy: noise.Policy, wish: dict[str, Any], required: bool
) -> None:
    answer = welcome({"version": 1, "noise": wish}, policy=policy)

    assert answer["noise"] == {
        "required": required,
        "pubkey": NOISE_KEY,
        "pattern": "Noise_XX_25519_ChaChaPoly_SHA256",
    }


def test_noise_that_is_off_is_not_offered() -> None:
    off = noise.Policy.OFF

    assert welcome({"version": 1}, policy=off)["noise"] == {"required": False}
    with pytest.raises(InvalidMessage):
        welcome({"version": 1, "noise": {"required": True}}, policy=off)


@pytest.mark.parametrize(
    "hello",
    [
        {},
        {"version": 0},
        {"version": "1"},
        {"version": True},
        {"version": 1, "formats": "json"},
        {"version": 1, "formats": [1]},
        {"version": 1, "noise": True},
        {"version": 1, "noise": {"required": 1}},
        {"version": 1, "noise": {"pubkey": "00"}},
        {"version": 1, "noise": {"pubkey": 5}},
    ],
    ids=repr,
)
def test_a_malformed_hello_is_refused(hello: dict[str, Any]) -> None:
    with pytest.raises(InvalidMessage):
        messages.parse_hello(hello)


# What clients send.


def test_publish_carries_an_event_and_perhaps_a_capability() -> None:
    event = EVENTS["immutable"]["event"]

    bare = messages.parse_publish({"event": event})
    assert (bare.event, bare.capability, bare.event_id) == (event, None, event["event_id"])
    assert messages.parse_publish({"event": event, "capability": []}).capability == []
    assert messages.parse_publish({"event": {"event_id": "x"}}).event_id is None
    assert messages.parse_publish({"event": 5}).event_id is None
    with pytest.raises(InvalidMessage):
        messages.parse_publish({})


def test_subscribe_has_an_id_and_filters() -> None:
    found = messages.parse_subscribe(
        {"sub_id": "s", "filters": [{}, {"kinds": [1]}]}, max_filters=2
    )

    assert found.sub_id == "s"
    assert [each.kinds for each in found.filters] == [None, {1}]


@pytest.mark.parametrize("sub_id", [None, 5, "", "x" * 65, ["s"]])
def test_a_subscription_id_has_1_to_64_characters(sub_id: object) -> None:
    with pytest.raises(InvalidMessage) as caught:
        messages.parse_subscribe({"sub_id": sub_id, "filters": [{}]}, max_filters=2)
    with pytest.raises(InvalidMessage):
        messages.parse_sub_id({"sub_id": sub_id})

    assert caught.value.sub_id is None
    assert messages.parse_sub_id({"sub_id": "ž" * 64}) == "ž" * 64


@pytest.mark.parametrize("filters", [None, {}, [], [{}, {}, {}], [5], [{"colour": "red"}]])
def test_refused_filters_name_the_subscription(filters: object) -> None:
    with pytest.raises(InvalidMessage) as caught:
        messages.parse_subscribe({"sub_id": "s", "filters": filters}, max_filters=2)

    assert caught.value.sub_id == "s"


# What goes out.


def written(message: Outgoing) -> str | bytes:
    return messages.write(message, Envelope(Format.JSON))


def test_answers_read_as_the_contract_says() -> None:
    assert written(messages.ack()) == '{"type":"ack"}'
    assert written(messages.ack(event_id="e", message="accepted")) == (
        '{"type":"ack","event_id":"e","message":"accepted"}'
    )
    assert written(messages.error(Code.TOO_LARGE, "why", sub_id="s")) == (
        '{"type":"error","error":"too_large","message":"why","sub_id":"s"}'
    )
    assert written(messages.error(Code.PAYMENT_REQUIRED, "pay", quote={"price": "1"})) == (
        '{"type":"error","error":"payment_required","message":"pay","quote":{"price":"1"}}'
    )
    assert written(messages.error_for(InvalidEvent("bad", event_id="e"))) == (
        '{"type":"error","error":"invalid_event","message":"bad","event_id":"e"}'
    )
    assert written(messages.event('"s"', '{"event_id":"e"}')) == (
        '{"type":"event","sub_id":"\\"s\\"","event":{"event_id":"e"}}'
    )


def test_what_our_client_sends_a_relay_understands() -> None:
    event = EVENTS["unicode"]["event"]
    hello = messages.read(written(messages.hello(["json"], noise_pubkey=NOISE_KEY)))
    publish = messages.read(written(messages.publish(event)))
    subscribe = messages.read(written(messages.subscribe("s", [{"kinds": [1]}])))
    unsubscribe = messages.read(written(messages.unsubscribe("s")))

    assert messages.parse_hello(hello.body) == Hello(1, ("json",), False, NOISE_KEY)
    assert messages.parse_publish(publish.body).event == event
    assert messages.parse_subscribe(subscribe.body, max_filters=1).filters[0].kinds == {1}
    assert messages.parse_sub_id(unsubscribe.body) == "s"
    assert [each.type for each in (hello, publish, subscribe, unsubscribe)] == [
        MessageType.HELLO,
        MessageType.PUBLISH,
        MessageType.SUBSCRIBE,
        MessageType.UNSUBSCRIBE,
    ]
