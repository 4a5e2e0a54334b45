"""Proof that a subscriber receives at its address, before money moves: nobody may aim deliveries at
somebody else."""

from farthing.context import Agent
from farthing.store.paid_subscriptions import PaidSubscription


def prove_address(agent: Agent, subscription: PaidSubscription, milliseconds: int) -> None:
    raise NotImplementedError
