"""The handling of one Aether frame: read it, count it, call its verb, and turn every failure into
an ERROR."""

import logging
from dataclasses import dataclass
from typing import Final

from farthing.aether import messages
from farthing.aether.errors import AetherError, Code, InvalidMessage, NotAether
from farthing.aether.frames import MessageType
from farthing.aether.messages import Envelope, Format, Message, Outgoing, Publish
from farthing.context import Agent
from farthing.nostr.messages import Prefix, Refused
from farthing.ports.connections import NumberedFrame
from farthing.ports.meter import Metric
from farthing.relay.aether import handshake
from farthing.relay.aether.channel import ID_PREFIX, NOSTR_FORM, Channel
from farthing.relay.aether.publish import PaymentRequired, publish
from farthing.relay.aether.subscribe import subscribe, unsubscribe
from farthing.relay.caller import Caller
from farthing.relay.message_length import TooLong, check_length
from farthing.relay.opening import Overtaken, TooManySubscriptions
from farthing.relay.refusals import note_refusal
from farthing.relay.socket_delivery import settle_deliveries
from farthing.store.noise_states import SESSION
from farthing.store.sessions import Connection
from farthing.store.table import Contended

log = logging.getLogger("farthing")

_JSON_TEXT: Final = Envelope(Format.JSON)


def receive(agent: Agent, caller: Caller, frame: str | bytes) -> str | bytes | None:
    """Handle a frame. The returned frame is sent last. Raises NotAether for a frame that is not
    Aether, on a connection that is not marked as Aether."""
    caller.speaks_nostr = False
    return _Answering(agent, caller).answer(frame)


def refuse(frame: str | bytes, refused: Refused) -> str | bytes:
    """The answer to a frame that is refused before any work for it. Raises NotAether."""
    envelope = messages.probable_envelope(frame)
    try:
        message = messages.read(frame)
        about, envelope = _subject_of(message), message.envelope
    except NotAether:
        raise
    except AetherError as error:
        about = _Subject(error.event_id, error.sub_id)
    return messages.write(about.error(_code_of(refused), str(refused)), envelope)


def refuse_nostr(agent: Agent) -> str | bytes:
    """The answer to a Nostr frame on a connection that is marked as Aether."""
    agent.meter.count(Metric.EVENTS_REFUSED)
    problem = messages.error(Code.INVALID_MESSAGE, "expected an Aether message")
    return messages.write(problem, _JSON_TEXT)


@dataclass(frozen=True, slots=True)
class _Subject:
    """What an error must name, even if the rest of the message is invalid."""

    event_id: str | None = None
    sub_id: str | None = None

    def error(self, code: Code, text: str) -> Outgoing:
        return messages.error(code, text, event_id=self.event_id, sub_id=self.sub_id)


class _Answering:
    """One frame of one caller. Reading the frame and the connection determines the channel step by
    step."""

    def __init__(self, agent: Agent, caller: Caller) -> None:
        self._agent = agent
        self._caller = caller
        self._channel = Channel(_JSON_TEXT)
        self._about = _Subject()

    def answer(self, frame: str | bytes) -> str | bytes | None:
        try:
            reply = self._read_and_serve(frame)
        except NotAether:
            if not self._caller.visit().is_aether:
                raise
            if isinstance(frame, str):  # the format is unknown, and every client can read JSON
                self._channel = Channel(_JSON_TEXT)
            reply = messages.error(Code.INVALID_MESSAGE, "expected an Aether message")
        return None if reply is None else self._send(reply)

    def _read_and_serve(self, frame: str | bytes) -> Outgoing | None:
        try:
            message = self._read(frame)
            self._channel = Channel(message.envelope)
            self._about = _subject_of(message)
            check_length(self._agent.settings.max_message_length, frame)
            reply = self._serve(message)
        except Overtaken:
            reply = None
        except NotAether:
            raise
        except PaymentRequired as error:
            self._note(error)
            reply = messages.error(
                error.code, str(error), event_id=error.event_id, quote=error.quote
            )
        except AetherError as error:
            self._note(error)
            error.event_id = error.event_id or self._about.event_id
            error.sub_id = error.sub_id or (None if error.event_id else self._about.sub_id)
            reply = messages.error_for(error)
        except Refused as refused:
            self._note(refused)
            reply = self._about.error(_code_of(refused), str(refused))
        except Contended as error:
            reply = self._about.error(Code.INTERNAL, f"{error}, try again")
        except Exception:
            log.exception("an Aether message could not be handled")
            self._agent.meter.count(Metric.INTERNAL_ERRORS)
            reply = self._about.error(Code.INTERNAL, "internal error, try again")
        return self._counted(reply)

    def _read(self, frame: str | bytes) -> Message:
        try:
            return messages.read(frame)
        except AetherError:
            self._channel = Channel(messages.probable_envelope(frame))
            raise

    def _note(self, refusal: Exception) -> None:
        about, client = self._about.event_id, self._caller.ip
        note_refusal(self._agent, "Aether message", str(refusal), event=about, client=client)

    def _counted(self, reply: Outgoing | None) -> Outgoing | None:
        """Count the message, even if it was refused early. Nostr's challenge is sent with the first
        Nostr message, not here."""
        try:
            connection = self._caller.arrive()
            if connection.messages == 1 and not connection.is_aether:
                sessions = self._agent.sessions
                sessions.put_off_greeting(connection.id, is_ungreeted=True)
        except Refused:
            pass  # the message already has its answer
        except Exception:
            log.exception("an Aether message could not be counted")
        return reply

    def _serve(self, message: Message) -> Outgoing | None:
        if message.type is MessageType.HELLO:
            return handshake.hello(self._agent, self._caller.arrive(), message)
        if message.type is MessageType.NOISE:
            return self._serve_noise(message)
        return self._serve_inner(message, sealed=False)

    def _serve_noise(self, message: Message) -> Outgoing | None:
        connection = self._caller.visit()
        if connection.noise.stage == SESSION:  # every answer is sealed, also that of a fast sender
            self._channel = handshake.sealed_channel(connection, message)
        self._caller.arrive()
        if connection.noise.stage < SESSION:
            answer = handshake.shake_hands(self._agent, connection, message)
            if answer is not None:
                return answer
            # The handshake has advanced, and this changes the form of the answer.
            self._channel = handshake.sealed_channel(connection, message)
            self._agent.subscriptions.change_form(connection.id, self._channel.form, but=NOSTR_FORM)
            return messages.ack()
        inner = handshake.unseal(self._agent, connection, message)
        self._about = _subject_of(inner)
        return self._serve_inner(inner, sealed=True)

    def _serve_inner(self, message: Message, *, sealed: bool) -> Outgoing | None:
        match message.type:
            case MessageType.PUBLISH:
                return self._publish(message, sealed=sealed)
            case MessageType.SUBSCRIBE:
                return self._subscribe(message, sealed=sealed)
            case MessageType.UNSUBSCRIBE:
                self._check(self._caller.arrive(), sealed=sealed)
                sub_id = messages.parse_sub_id(message.body)
                unsubscribe(self._agent, self._caller, ID_PREFIX + sub_id)
                return messages.ack(sub_id=sub_id)
        raise InvalidMessage(f"{message.type.word}: not expected from a client")

    def _check(self, connection: Connection, *, sealed: bool) -> None:
        if not sealed:
            handshake.check_plain(self._agent, connection)

    def _publish(self, message: Message, *, sealed: bool) -> Outgoing:
        caller = self._caller

        def check() -> None:
            self._check(caller.arrive(), sealed=sealed)

        if caller.is_hasty:
            caller.arrive()
        try:
            body = messages.parse_publish(message.body)
            done = publish(self._agent, body, ip=caller.ip, beside=check)
        except AetherError:
            check()  # a plain message that must be sealed is refused as such, whatever it holds
            raise
        check()  # nothing was written for a duplicate
        return messages.ack(event_id=done.event_id, message=done.message)

    def _subscribe(self, message: Message, *, sealed: bool) -> Outgoing | None:
        agent, caller, channel = self._agent, self._caller, self._channel
        # First, so that a refused message replaces no subscription.
        self._check(caller.arrive(), sealed=sealed)
        wanted = messages.parse_subscribe(message.body, max_filters=agent.settings.max_filters)
        listens = subscribe(
            agent, caller, ID_PREFIX + wanted.sub_id, wanted.filters, form=channel.form,
            write=lambda json: channel.frame(
                agent, caller.connection_id, messages.event(wanted.sub_id, json)
            ),
        )  # fmt: skip
        return messages.ack(sub_id=wanted.sub_id) if listens else None

    def _send(self, reply: Outgoing) -> str | bytes | None:
        """A plain reply is returned as the answer to the call. A sealed reply is posted as a frame,
        and gets its number when it is sent."""
        frame = self._channel.frame(self._agent, self._caller.connection_id, reply)
        if not isinstance(frame, NumberedFrame):
            return frame
        connection_id = self._caller.connection_id
        delivery = self._agent.connections.post_in_order(connection_id, [frame])
        settle_deliveries(self._agent, [(connection_id, delivery)])
        return None


def _subject_of(message: Message) -> _Subject:
    if message.type is MessageType.PUBLISH:
        return _Subject(event_id=Publish(message.body.get("event")).event_id)
    try:
        return _Subject(sub_id=messages.parse_sub_id(message.body))
    except InvalidMessage:
        return _Subject()


def _code_of(refused: Refused) -> Code:
    if isinstance(refused, TooLong):
        return Code.TOO_LARGE
    limited = refused.prefix is Prefix.RATE_LIMITED or isinstance(refused, TooManySubscriptions)
    return Code.RATE_LIMITED if limited else Code.INVALID_MESSAGE
