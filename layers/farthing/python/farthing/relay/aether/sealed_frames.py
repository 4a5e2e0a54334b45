"""Outgoing frames of a Noise session, sealed when they are sent.

A frame gets its number at the moment of sending. So if frames wait in a queue, as on one machine,
their numbers go out in order. In the cloud several containers may send at once: then each has its
own numbers, and clients take them out of order.
"""

from farthing.aether import messages, noise
from farthing.aether.messages import Envelope
from farthing.context import Agent
from farthing.ports.connections import NumberedFrame
from farthing.relay.aether.noise_keys import open_session
from farthing.store.noise_states import NoiseStates
from farthing.store.sessions import connection_key

_OVERHEAD = 128  # octets of the counter, the tag and the envelope


def noise_states(agent: Agent) -> NoiseStates:
    return agent.part(_states)


def _states(agent: Agent) -> NoiseStates:
    seconds = agent.settings.connection_seconds
    return NoiseStates(agent.engine, seconds, in_order=agent.in_order)


class SealedFrame(NumberedFrame):
    def __init__(self, agent: Agent, connection_id: str, octets: bytes, envelope: Envelope) -> None:
        self._agent = agent
        self._connection_id = connection_id
        self._octets = octets
        self._envelope = envelope
        # As text, a frame needs up to twice its octets.
        self.size = (len(octets) if envelope.binary else 2 * len(octets)) + _OVERHEAD

    def write(self) -> str | bytes | None:
        taken = noise_states(self._agent).take_number(connection_key(self._connection_id))
        if taken is None:
            return None
        number, sealed = taken
        try:
            session = open_session(self._agent, self._connection_id, sealed)
            payload = noise.seal(session.send_key, number, self._octets)
        except noise.NoiseRefused:  # the session's keys are lost, or its numbers have run out
            return None
        return messages.write(messages.noise_message(payload), self._envelope)
