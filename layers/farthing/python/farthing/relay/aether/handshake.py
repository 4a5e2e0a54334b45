"""HELLO and NOISE: the negotiation of a connection, and its encryption.

Each step is one call. The state in between is sealed in the connection's record.
"""

import secrets

from farthing.aether import messages, noise
from farthing.aether.errors import InvalidMessage, NotAether
from farthing.aether.frames import MessageType
from farthing.aether.messages import Format, Message, Outgoing
from farthing.aether.noise import NoiseRefused
from farthing.context import Agent
from farthing.relay.aether import noise_keys
from farthing.relay.aether.channel import Channel
from farthing.relay.aether.owner import owner_keys
from farthing.relay.aether.sealed_frames import noise_states
from farthing.store.noise_states import ANSWERED, HELLO, SESSION, NoiseState
from farthing.store.sessions import Connection, connection_key


def hello(agent: Agent, connection: Connection, message: Message) -> Outgoing:
    """The WELCOME. From now on the connection is marked as Aether."""
    if agent.in_order and connection.messages > 1:
        raise InvalidMessage("hello: expected as the first message")
    wish = messages.parse_hello(message.body)
    policy = noise.Policy(agent.settings.aether_noise)
    welcome = messages.negotiate(
        wish, message.envelope, binary=agent.in_order, policy=policy,
        noise_pubkey=owner_keys(agent).noise_pubkey,
    )  # fmt: skip
    answer = welcome.message()
    state = noise.start(initiator=False, prologue=noise.prologue(message.octets, answer.octets))
    sealed = noise_keys.seal_handshake(agent, connection.id, state, wish.noise_pubkey)
    begun = NoiseState(HELLO, sealed, welcome.format.value, welcome.noise_required)
    if not noise_states(agent).begin(connection_key(connection.id), begun):
        raise InvalidMessage("hello: expected once")
    return answer


def check_plain(agent: Agent, connection: Connection) -> None:
    """Refuse a plain message on a connection that requires Noise."""
    required = connection.noise.is_required or agent.settings.aether_noise == noise.Policy.REQUIRED
    if required or connection.noise.stage == SESSION:
        raise InvalidMessage("expected a message inside noise")


def shake_hands(agent: Agent, connection: Connection, message: Message) -> Outgoing | None:
    """A step of the handshake: the answer, or None after the last one."""
    state = connection.noise
    if agent.settings.aether_noise == noise.Policy.OFF:
        raise NoiseRefused("noise: off at this relay")
    if state.stage not in (HELLO, ANSWERED):
        raise NoiseRefused("noise: expected hello first")
    handshake, claimed = noise_keys.open_handshake(agent, connection.id, state.sealed)
    static = owner_keys(agent).noise_static
    if state.stage == HELLO:
        ephemeral = secrets.token_bytes(noise.KEY)
        handshake, answer = noise.respond_from(
            handshake, message.octets, static=static, ephemeral=ephemeral
        )
        sealed = noise_keys.seal_handshake(agent, connection.id, handshake, claimed)
        _advance(agent, connection, sealed)
        return messages.noise_message(answer)
    session = noise.complete(handshake, message.octets, static=static, claimed=claimed)
    _advance(agent, connection, noise_keys.seal_session(agent, connection.id, session))
    return None


def _advance(agent: Agent, connection: Connection, sealed: bytes) -> None:
    stage = connection.noise.stage
    if not noise_states(agent).advance(connection_key(connection.id), stage, sealed):
        raise NoiseRefused("noise: another message has taken this step")


def unseal(agent: Agent, connection: Connection, message: Message) -> Message:
    """The message inside NOISE. Its counter is used up."""
    session = noise_keys.open_session(agent, connection.id, connection.noise.sealed)
    counter, inner = noise.unseal(session.receive_key, message.octets)
    if not noise_states(agent).take_counter(connection_key(connection.id), counter, agent.now):
        raise NoiseRefused(f"noise: counter {counter} was used before")
    try:
        found = messages.read(inner)
    except NotAether:  # the answer is sealed, unlike the answer to a frame that is not Aether
        raise InvalidMessage("expected an Aether message inside noise") from None
    if found.type in (MessageType.HELLO, MessageType.NOISE):
        raise InvalidMessage(f"{found.type.word}: not expected inside noise")
    return found


def sealed_channel(connection: Connection, message: Message) -> Channel:
    """The channel for answers to a message inside NOISE, and for events of its subscriptions."""
    return Channel(message.envelope, Format(connection.noise.format))
