"""The form of messages to one client: the envelope of its own messages, plain or sealed.

A subscription stores its channel as a short text, so that live events have the same form.
"""

from dataclasses import dataclass
from typing import Final, Self

from farthing.aether import messages, noise
from farthing.aether.errors import Code
from farthing.aether.messages import Envelope, Format, Outgoing
from farthing.context import Agent
from farthing.ports.connections import Binary, Frame
from farthing.relay.aether.sealed_frames import SealedFrame

# On one connection, a Nostr subscription and an Aether subscription may have the same name.
ID_PREFIX: Final = "aether:"
# The form of a subscription that a Nostr client has opened. All other forms belong to channels.
NOSTR_FORM: Final = "nostr"

_FORMATS = {Format.JSON: "j", Format.FLATBUFFERS: "f"}
_BY_LETTER = {letter: each for each, letter in _FORMATS.items()}


@dataclass(frozen=True, slots=True)
class Channel:
    envelope: Envelope
    inner: Format | None = None  # the format inside sealed frames; None means plain frames

    def frame(self, agent: Agent, connection_id: str, message: Outgoing) -> Frame:
        if self.inner is None:
            written = messages.write(message, self.envelope)
            return Binary(written) if isinstance(written, bytes) else written
        octets = messages.inner(message, self.inner)
        if len(octets) > noise.MAX_INNER:
            problem = messages.error(Code.TOO_LARGE, "the event is larger than noise can carry")
            octets = messages.inner(problem, self.inner)
        return SealedFrame(agent, connection_id, octets, self.envelope)

    @property
    def form(self) -> str:
        """`jt` for JSON in text frames, `fbp` for binary FlatBuffers with their length in front;
        after a colon, the format inside sealed frames."""
        envelope = self.envelope
        outer = _FORMATS[envelope.format] + ("b" if envelope.binary else "t")
        outer += "p" if envelope.prefixed else ""
        return outer if self.inner is None else f"{outer}:{_FORMATS[self.inner]}"

    @classmethod
    def of_form(cls, form: str) -> Self:
        outer, _, inner = form.partition(":")
        envelope = Envelope(_BY_LETTER[outer[0]], outer[1] == "b", outer[2:] == "p")
        return cls(envelope, _BY_LETTER[inner] if inner else None)
