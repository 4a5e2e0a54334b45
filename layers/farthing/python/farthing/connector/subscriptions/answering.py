"""The texts for a subscription's owner: answers to messages, messages of the relay, tokens."""

from farthing.btp_nips.answers import ReqAnswer
from farthing.btp_nips.positions import Position
from farthing.btp_nips.relay_messages import RelayMessages
from farthing.btp_nips.tokens import ResumptionToken, issue_token
from farthing.context import Agent
from farthing.store.paid_records import PaidSubscription


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
    """The answer to a REQ, made from the present state. `position` is stated in place of the
    cursor. The token always has the cursor: it must leave no gap."""
    cursor = subscription.account.cursor
    return ReqAnswer(
        subscription_id=subscription.id,
        state=subscription.state_at(agent.now),
        model=subscription.terms.model,
        event_count=subscription.stored,
        expires_at_ms=subscription.expires_at * 1000,
        price=subscription.terms.price,
        event_fee=subscription.terms.event_fee,
        credit=subscription.account.credit,
        position=cursor if position is None else position,
        resumption_token=token_of(agent, subscription, cursor),
    )
