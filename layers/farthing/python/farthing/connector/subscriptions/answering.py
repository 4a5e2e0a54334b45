"""What a subscription's owner is told: answers to messages, the messages of the relay, tokens."""

from farthing.btp_nips.answers import ReqAnswer
from farthing.btp_nips.positions import Position
from farthing.btp_nips.relay_messages import RelayMessages
from farthing.btp_nips.tokens import ResumptionToken, issue_token
from farthing.context import Agent
from farthing.store.paid_subscriptions import PaidSubscription


def messages_of(agent: Agent, subscription: PaidSubscription) -> RelayMessages:
    settings = agent.settings
    return RelayMessages(
        subscription.id, settings.pubkey, subscription.terms.asset_code, subscription.began
    )


def token_of(agent: Agent, subscription: PaidSubscription, position: Position) -> str:
    return issue_token(
        agent.settings.secret,
        ResumptionToken(subscription.owner, subscription.id, position, subscription.expires_at),
    )


def answer_of(
    agent: Agent, subscription: PaidSubscription, position: Position | None = None
) -> ReqAnswer:
    """The answer to a REQ, from the present state."""
    at = subscription.account.cursor if position is None else position
    return ReqAnswer(
        subscription_id=subscription.id,
        state=subscription.state,
        model=subscription.terms.model,
        event_count=subscription.stored,
        expires_at_ms=subscription.expires_at * 1000,
        price=subscription.terms.price,
        event_fee=subscription.terms.event_fee,
        credit=subscription.account.credit,
        position=at,
        resumption_token=token_of(agent, subscription, at),
    )
