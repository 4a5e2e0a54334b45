"""Ephemeral Aether events: passed on once, and never stored.

An id is remembered for as long as the event could be sent again: a minute before and after its own
time. The id is stored in the ledger's table, so that one transaction claims the id and pays for the
event.
"""

from farthing.aether.events import Event
from farthing.aether.numbers import SECOND
from farthing.aether.policies import EPHEMERAL_SECONDS
from farthing.context import Agent
from farthing.relay.fan_out import fan_out
from farthing.store.payment import Payment, raise_if_refused
from farthing.store.spaces import AETHER
from farthing.store.table import (
    EXPIRES,
    Absent,
    ConditionFailed,
    Key,
    Put,
    Table,
    TransactionCancelled,
)


def claim_of(event: Event) -> Put:
    """The write that claims the event's id. It fails if the id was claimed before."""
    expires = event.created_at // SECOND + EPHEMERAL_SECONDS + 2
    return Put(Table.LEDGER, *_key(event), {EXPIRES: expires}, Absent())


def is_claimed(agent: Agent, event: Event) -> bool:
    """Whether the event was passed on before."""
    return agent.engine.get(Table.LEDGER, *_key(event)) is not None


def _key(event: Event) -> Key:
    return f"{AETHER.prefix}ephemeral#{event.id}", "e"


def claim(agent: Agent, event: Event, payment: Payment | None) -> bool:
    """Claim the id and pay, in one transaction. False if the id was claimed before. Raises
    PaymentRefused."""
    write = claim_of(event)
    if payment is None or not payment.writes:
        try:
            agent.engine.write(write)
        except ConditionFailed:
            return False
        return True
    try:
        agent.engine.transact([write, *payment.writes])
    except TransactionCancelled as cancelled:
        if cancelled.failed[0]:
            return False
        raise_if_refused(cancelled, 1)
        raise
    return True


def pass_on(agent: Agent, event: Event) -> None:
    fan_out(agent, [event], AETHER)
