"""The HTTP requests about paid subscriptions: list a key's subscriptions, and end one of them. Only
the key itself and the relay's owner may ask."""

from typing import TYPE_CHECKING, Any, Final

from farthing.btp_nips.errors import Outdated
from farthing.btp_nips.identity import key_owner
from farthing.btp_nips.lifecycle import Ending
from farthing.connector.subscriptions.ending import end_and_tell
from farthing.context import Agent
from farthing.nostr.http_auth import parse_header
from farthing.nostr.nip19 import Npub, encode
from farthing.ports.http import Conflict, Forbidden, NotFound

if TYPE_CHECKING:  # imported with the first paid subscription
    from farthing.store.paid_records import PaidSubscription

# A key that opens and ends many subscriptions has many records for a day.
_MOST_SHOWN: Final = 100


def list_subscriptions(agent: Agent, key: str, asker: str) -> dict[str, Any]:
    """The key's open subscriptions, and those that ended within a day. Open subscriptions come
    first, those with the most time first."""
    _check(agent, key, asker)
    settings, now = agent.settings, agent.now
    found = agent.paid_subscriptions.of(key_owner(key), now)
    found.sort(key=lambda each: (each.state.has_ended, -each.expires_at, each.id))
    return {
        "key": key,
        "npub": encode(Npub(key)),
        "asset_code": settings.asset_code,
        "asset_scale": settings.asset_scale,
        "time": now,
        "subscriptions": [subscription_row(each, now) for each in found[:_MOST_SHOWN]],
    }


def subscription_row(subscription: "PaidSubscription", now: int) -> dict[str, Any]:
    """A subscription as JSON: amounts as decimal strings, times in seconds."""
    account, terms = subscription.account, subscription.terms
    row: dict[str, Any] = {
        "id": subscription.id,
        "status": subscription.state_at(now).value,
        "model": terms.model.value,
        "filters": [filter.as_dict() for filter in subscription.filters],
        "delivery": subscription.agreed.delivery.value,
        "price": str(terms.price),
        "event_fee": str(terms.event_fee),
        "credit": str(account.credit),
        "spent": str(account.spent),
        "events": account.delivered,
        "position": str(account.cursor),
        "began": subscription.began,
        "expires_at": subscription.expires_at,
    }
    if subscription.agreed.reply_to:
        row["reply_to"] = subscription.agreed.reply_to
    if subscription.state.has_ended:
        row |= {"ending": subscription.ending, "returned": str(subscription.returned)}
    return row


def close_subscription(
    agent: Agent, key: str, subscription_id: str, asker: str, authorization: str
) -> dict[str, Any]:
    """End a subscription as CLOSE does. Ending it again gives the same answer."""
    _check(agent, key, asker)
    store = agent.paid_subscriptions
    found = store.get(key_owner(key), subscription_id, agent.now)
    if found is None:
        raise NotFound("expected the id of one of the key's subscriptions, got an unknown id")
    # A delayed request must not end a subscription that was opened after it.
    by_key = asker == key
    asked_at = parse_header(authorization).created_at if by_key else None
    try:
        ending = Ending.CLOSE if by_key else Ending.OPERATOR
        ended = end_and_tell(agent, found, ending, asked_at=asked_at)
    except Outdated as error:
        raise Conflict(str(error)) from None
    if ended is None:
        ended = store.get(key_owner(key), subscription_id, agent.now) or found
    return {"id": subscription_id, "closed": True, "credit": str(ended.returned)}


def _check(agent: Agent, key: str, asker: str) -> None:
    if asker not in (key, agent.settings.pubkey):
        raise Forbidden("only the key itself and the relay's owner may see its paid subscriptions")
