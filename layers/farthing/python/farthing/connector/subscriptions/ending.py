"""The end of a subscription: what is left of its credit goes back to its owner, in the transaction
that ends it."""

from farthing.btp_nips.lifecycle import Ending
from farthing.context import Agent
from farthing.store.paid_subscriptions import PaidSubscription
from farthing.store.table import Contended, TransactionCancelled, TransactWrite

_ATTEMPTS = 20


def end_writes(agent: Agent, ended: PaidSubscription, *, drawn: int = 0) -> list[TransactWrite]:
    """What goes with an end, beside the change of the account. `drawn` has just been refilled."""
    funds = agent.subscription_funds.of(ended.owner)
    moved = agent.subscription_funds.move(
        funds, ended.id, drawn=drawn, returned=ended.returned, time_ms=agent.now_ms
    )
    return [*agent.paid_subscriptions.end(ended, agent.now), *moved]


def end(agent: Agent, subscription: PaidSubscription, ending: Ending) -> PaidSubscription | None:
    """End a subscription now. None if it has ended meanwhile, or has more time than we knew."""
    store, current = agent.paid_subscriptions, subscription
    for _ in range(_ATTEMPTS):
        if current.state.has_ended:
            return None
        if ending is Ending.TTL and agent.now < current.expires_at:
            return None
        ended = current.ended(ending, agent.now)
        writes = [store.change(current, ended), *end_writes(agent, ended)]
        try:
            agent.engine.transact(writes)
        except (TransactionCancelled, Contended):
            found = store.get(current.owner, current.id, agent.now)
            if found is None:
                return None
            current = found
        else:
            if current.is_push:
                store.forget_hints(current)
            return ended
    raise Contended("the subscription is being changed by others")
