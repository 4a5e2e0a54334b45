"""Messages of the Aether socket: reading and writing them in each format, and their shapes.

The payload of a FlatBuffers frame is the JSON message, so both formats share everything but the
envelope. Only NOISE differs: there the payload is raw, and JSON writes it as hexadecimal.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

import orjson

from farthing.aether import frames, keys, noise
from farthing.aether.errors import AetherError, Code, InvalidEvent, InvalidMessage, NotAether
from farthing.aether.filters import Filter, parse_filter
from farthing.aether.frames import BY_WORD, Frame, MessageType
from farthing.nostr.messages import decode_loosely, is_text

VERSION: Final = 1
SUBPROTOCOL: Final = "aether.v1"
MAX_SUB_ID: Final = 64

_HEX = re.compile(r"(?:[0-9a-f]{2})*").fullmatch
_JSON_SPACE: Final = " \t\r\n"


class Format(StrEnum):
    FLATBUFFERS = "flatbuffers"
    JSON = "json"


class Envelope(NamedTuple):
    """The form in which a message came. Its answer has the same form."""

    format: Format
    binary: bool = False
    prefixed: bool = False


class Message(NamedTuple):
    """A received message: its type, and its body before parsing. Each type has its own parser."""

    type: MessageType
    body: Mapping[str, Any]
    octets: bytes  # the received JSON, or the payload of NOISE
    envelope: Envelope


class Outgoing(NamedTuple):
    """A message to send: JSON, or the payload of NOISE."""

    type: MessageType
    octets: bytes


def is_nostr(text: str) -> bool:
    """Whether a text frame is for Nostr, on a socket that serves both."""
    return text.lstrip(_JSON_SPACE)[:1] == "["


def read(frame: str | bytes) -> Message:
    """The message in a text or binary frame, or in the opened payload of NOISE.

    Raises NotAether for text or octets that are neither an object with a `type` nor a valid frame,
    and InvalidMessage for a message with another fault.
    """
    if isinstance(frame, str):
        if frame.lstrip(_JSON_SPACE)[:1] == "{":
            return _read_json(frame.encode(errors="surrogatepass"), binary=False)
        return _read_flatbuffers(frames.from_text(frame), binary=False)
    if frame[:1] == b"{":
        return _read_json(frame, binary=True)
    return _read_flatbuffers(frame, binary=True)


def _read_json(octets: bytes, *, binary: bool) -> Message:
    body = _json_object(octets, NotAether)
    kind = BY_WORD.get(body["type"])
    if kind is None:
        raise InvalidMessage(f"unknown message type {body['type'][:32]!r}")
    if kind is MessageType.NOISE:
        octets = _noise_payload(body)
    return Message(kind, body, octets, Envelope(Format.JSON, binary))


def _read_flatbuffers(octets: bytes, *, binary: bool) -> Message:
    frame = frames.decode(octets)
    envelope = Envelope(Format.FLATBUFFERS, binary, frame.prefixed)
    if frame.type is MessageType.NOISE:
        return Message(frame.type, {}, frame.payload, envelope)
    body = _json_object(frame.payload, InvalidMessage)
    if body["type"] != frame.type.word:
        raise InvalidMessage(
            f"expected type {frame.type.word!r} as the frame says, got {body['type'][:32]!r}"
        )
    return Message(frame.type, body, frame.payload, envelope)


def probable_envelope(frame: str | bytes) -> Envelope:
    """The envelope of a frame that cannot be read, for the answer."""
    binary = not isinstance(frame, str)
    octets = frame.lstrip(_JSON_SPACE)[:1].encode() if isinstance(frame, str) else frame
    if octets[:1] == b"{":
        return Envelope(Format.JSON, binary)
    try:
        octets = frames.from_text(frame) if isinstance(frame, str) else frame
    except frames.InvalidFrame:
        octets = b""
    return Envelope(Format.FLATBUFFERS, binary, frames.is_prefixed(octets))


def _json_object(octets: bytes, problem: type[InvalidMessage]) -> dict[str, Any]:
    try:
        value = orjson.loads(octets)
    except orjson.JSONDecodeError:
        raise _unreadable(octets) or problem("expected JSON") from None
    if type(value) is not dict or type(value.get("type")) is not str:
        raise problem("expected an object with a type")
    return value


def _unreadable(octets: bytes) -> AetherError | None:
    """The error for a message that the parser refuses although its grammar is JSON's: it has half
    of a surrogate pair, or a number such as 1e999. The client waits for an answer with its id."""
    try:
        body = decode_loosely(octets)
    except (ValueError, RecursionError):
        return None
    if type(body) is not dict or type(body.get("type")) is not str:
        return None
    reason = "expected valid Unicode and numbers of at most 64 bits"
    if body["type"] == MessageType.PUBLISH.word:
        return InvalidEvent(reason, event_id=Publish(body.get("event")).event_id)
    sub_id = body.get("sub_id")
    is_named = is_text(sub_id) and 1 <= len(sub_id) <= MAX_SUB_ID
    return InvalidMessage(reason, sub_id=sub_id if is_named else None)


def _noise_payload(body: Mapping[str, Any]) -> bytes:
    payload = body.get("payload_hex")
    if type(payload) is not str or not _HEX(payload):
        raise InvalidMessage("payload_hex: expected lower-case hexadecimal digits")
    return bytes.fromhex(payload)


def write(message: Outgoing, envelope: Envelope) -> str | bytes:
    """The frame that carries the message: text, or octets where the envelope is binary."""
    octets = message.octets
    if envelope.format is Format.FLATBUFFERS:
        octets = frames.encode(Frame(message.type, octets, envelope.prefixed))
        return octets if envelope.binary else frames.to_text(octets)
    if message.type is MessageType.NOISE:
        octets = orjson.dumps({"type": message.type.word, "payload_hex": octets.hex()})
    return octets if envelope.binary else octets.decode()


def inner(message: Outgoing, chosen: Format) -> bytes:
    """The message as the plaintext of NOISE, in the negotiated format."""
    octets = write(message, Envelope(chosen, binary=True))
    return octets if isinstance(octets, bytes) else octets.encode()


# Messages from clients.


class Hello(NamedTuple):
    version: int = VERSION
    formats: tuple[str, ...] = (Format.JSON,)
    noise_required: bool = False
    noise_pubkey: str | None = None


class Publish(NamedTuple):
    event: object
    capability: object = None  # None without a capability

    @property
    def event_id(self) -> str | None:
        """The id that the event claims, for the answer."""
        claimed = self.event.get("event_id") if isinstance(self.event, dict) else None
        return claimed if keys.is_key(claimed) else None


class Subscribe(NamedTuple):
    sub_id: str
    filters: tuple[Filter, ...]


def parse_hello(body: Mapping[str, Any]) -> Hello:
    version, formats = body.get("version"), body.get("formats", [Format.JSON.value])
    if type(version) is not int or version < 1:
        raise InvalidMessage("version: expected an integer of at least 1")
    if type(formats) is not list or not all(type(each) is str for each in formats):
        raise InvalidMessage("formats: expected an array of names")
    wish = body.get("noise", {})
    if type(wish) is not dict or type(wish.get("required", False)) is not bool:
        raise InvalidMessage("noise: expected an object with required, true or false")
    pubkey = wish.get("pubkey")
    if pubkey is not None and not keys.is_key(pubkey):
        raise InvalidMessage("noise.pubkey: expected 64 lower-case hexadecimal digits")
    return Hello(version, tuple(formats), wish.get("required", False), pubkey)


def parse_publish(body: Mapping[str, Any]) -> Publish:
    if "event" not in body:
        raise InvalidMessage("publish: expected an event")
    return Publish(body["event"], body.get("capability"))


def parse_subscribe(body: Mapping[str, Any], *, max_filters: int) -> Subscribe:
    sub_id = parse_sub_id(body)
    try:
        return Subscribe(sub_id, parse_filters(body.get("filters"), max_filters))
    except InvalidMessage as error:
        error.sub_id = sub_id
        raise


def parse_filters(value: object, most: int) -> tuple[Filter, ...]:
    if type(value) is not list or not 1 <= len(value) <= most:
        raise InvalidMessage(f"filters: expected an array of 1-{most} filters")
    return tuple(map(parse_filter, value))


def parse_sub_id(body: Mapping[str, Any]) -> str:
    """The subscription that a SUBSCRIBE or UNSUBSCRIBE names."""
    sub_id = body.get("sub_id")
    if type(sub_id) is not str or not 1 <= len(sub_id) <= MAX_SUB_ID:
        raise InvalidMessage(f"sub_id: expected text of 1-{MAX_SUB_ID} characters")
    return sub_id


# Messages from relays.


@dataclass(frozen=True, slots=True)
class Welcome:
    format: Format
    noise_required: bool = False
    noise_pubkey: str | None = None  # None if Noise is off
    version: int = field(default=VERSION, kw_only=True)

    def message(self) -> Outgoing:
        offer: dict[str, object] = {"required": self.noise_required}
        if self.noise_pubkey is not None:
            offer |= {"pubkey": self.noise_pubkey, "pattern": noise.PROTOCOL}
        return _json(
            MessageType.WELCOME, version=self.version, format=self.format.value, noise=offer
        )


def negotiate(
    hello: Hello, envelope: Envelope, *, binary: bool, policy: noise.Policy, noise_pubkey: str
) -> Welcome:
    """The answer to HELLO. `binary` says whether this socket carries binary frames."""
    passes = binary or envelope.format is Format.FLATBUFFERS
    chosen = Format.FLATBUFFERS if passes and Format.FLATBUFFERS in hello.formats else Format.JSON
    if policy is noise.Policy.OFF:
        if hello.noise_required:
            raise InvalidMessage("noise: required by the client, but off at this relay")
        return Welcome(chosen)
    required = policy is noise.Policy.REQUIRED or hello.noise_required
    return Welcome(chosen, required, noise_pubkey)


def event(sub_id: str, event_json: str) -> Outgoing:
    """EVENT around an event that is JSON already: it is not parsed again on its way out."""
    head = f'{{"type":"event","sub_id":{orjson.dumps(sub_id).decode()},"event":'
    return Outgoing(MessageType.EVENT, f"{head}{event_json}}}".encode())


def ack(
    *, event_id: str | None = None, sub_id: str | None = None, message: str | None = None
) -> Outgoing:
    return _json(MessageType.ACK, event_id=event_id, sub_id=sub_id, message=message)


def error(
    code: Code,
    message: str,
    *,
    event_id: str | None = None,
    sub_id: str | None = None,
    quote: Mapping[str, Any] | None = None,
) -> Outgoing:
    return _json(
        MessageType.ERROR,
        error=code.value,
        message=message,
        event_id=event_id,
        sub_id=sub_id,
        quote=quote,
    )


def error_for(problem: AetherError) -> Outgoing:
    return error(problem.code, str(problem), event_id=problem.event_id, sub_id=problem.sub_id)


def noise_message(payload: bytes) -> Outgoing:
    return Outgoing(MessageType.NOISE, payload)


# Messages from our own client.


def hello(
    formats: Sequence[str], *, noise_pubkey: str | None = None, noise_required: bool = False
) -> Outgoing:
    wish = None
    if noise_pubkey is not None:
        wish = {"required": noise_required, "pubkey": noise_pubkey}
    return _json(MessageType.HELLO, version=VERSION, formats=list(formats), noise=wish)


def publish(event: Mapping[str, Any], capability: Sequence[object] | None = None) -> Outgoing:
    return _json(MessageType.PUBLISH, event=event, capability=capability)


def subscribe(sub_id: str, filters: Sequence[Mapping[str, Any]]) -> Outgoing:
    return _json(MessageType.SUBSCRIBE, sub_id=sub_id, filters=filters)


def unsubscribe(sub_id: str) -> Outgoing:
    return _json(MessageType.UNSUBSCRIBE, sub_id=sub_id)


def _json(kind: MessageType, **fields: object) -> Outgoing:
    given = {name: value for name, value in fields.items() if value is not None}
    return Outgoing(kind, orjson.dumps({"type": kind.word, **given}))
