"""The stored data of Noise sessions: the state, sealed by the caller, and the used counters.

The state is in the connection's own item. So it comes with the request that counts a message, and
the number of an outgoing frame comes with the key that seals it, in one request.
"""

from typing import Final, NamedTuple

from farthing.store.table import (
    EXPIRES,
    Absent,
    Add,
    ConditionFailed,
    Engine,
    Equals,
    Item,
    Key,
    LessThan,
    Put,
    Table,
)

# The stages of a connection's handshake.
HELLO: Final = 1  # HELLO has been answered
ANSWERED: Final = 2  # the client's first handshake message has been answered
SESSION: Final = 3

_STAGE, _STATE, _FORMAT, _REQUIRED = "stage", "state", "format", "required"
_SENT, _RECEIVED = "sent", "received"


class NoiseState(NamedTuple):
    stage: int = 0
    sealed: bytes = b""
    format: str = ""  # of inner frames
    is_required: bool = False


NO_NOISE: Final = NoiseState()


def noise_state(item: Item) -> NoiseState:
    """The state in a connection's item."""
    if _STAGE not in item:
        return NO_NOISE
    return NoiseState(item[_STAGE], item[_STATE], item[_FORMAT], item[_REQUIRED])


class NoiseStates:
    """`in_order` says that messages of a connection are handled in order: then each counter must be
    above all earlier ones, and one number for each connection is enough."""

    def __init__(self, engine: Engine, seconds: int, *, in_order: bool = False) -> None:
        self._engine = engine
        self._life = seconds
        self._in_order = in_order

    def begin(self, connection: Key, state: NoiseState) -> bool:
        """Record the HELLO, and mark the connection as Aether. False if a HELLO has come before."""
        assign = {
            "x": True,
            _STATE: state.sealed,
            _FORMAT: state.format,
            _REQUIRED: state.is_required,
        }
        return self._add(connection, {_STAGE: HELLO}, assign, LessThan(_STAGE, HELLO)) is not None

    def advance(self, connection: Key, stage: int, sealed: bytes) -> bool:
        """Move from a stage to the next one. False if another message has done so meanwhile."""
        state = {_STATE: sealed}
        return self._add(connection, {_STAGE: 1}, state, Equals(_STAGE, stage)) is not None

    def take_number(self, connection: Key) -> tuple[int, bytes] | None:
        """A unique number for the next outgoing frame, and the sealed state. None if the connection
        is gone."""
        item = self._add(connection, {_SENT: 1}, {}, Equals(_STAGE, SESSION))
        return None if item is None else (item[_SENT] - 1, item[_STATE])

    def take_counter(self, connection: Key, counter: int, now: int) -> bool:
        """Use the counter of an incoming frame. False if it was used before."""
        if self._in_order:
            above = {_RECEIVED: counter + 1}
            fresh = LessThan(_RECEIVED, counter + 1)
            return self._add(connection, {}, above, fresh) is not None
        pk = f"noise#{connection[0]}"
        item = {EXPIRES: now + self._life}
        try:
            self._engine.write(Put(Table.SESSIONS, pk, f"{counter:020d}", item, Absent()))
        except ConditionFailed:
            return False
        return True

    def _add(
        self, connection: Key, amounts: dict[str, int], assign: Item, condition: Equals | LessThan
    ) -> Item | None:
        try:
            return self._engine.write(Add(Table.SESSIONS, *connection, amounts, assign, condition))
        except ConditionFailed:
            return None
