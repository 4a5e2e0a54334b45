"""The beginning of a subscription: its first position, and the stored events to deliver first."""

from collections.abc import Mapping
from itertools import islice
from typing import Final, NamedTuple

from farthing.btp_nips.errors import FilterRefused
from farthing.btp_nips.filter_sets import same_filters
from farthing.btp_nips.identity import Owner, owner_pubkey
from farthing.btp_nips.messages import Req
from farthing.btp_nips.positions import START, Position, backlog_size, pack_backlog
from farthing.btp_nips.tokens import read_token
from farthing.connector.subscriptions.reading import NOTHING_KNOWN
from farthing.context import Agent
from farthing.relay.visibility import visible_to
from farthing.store.events import StoredEvent
from farthing.store.paid_records import PaidSubscription
from farthing.store.planner import ScanAllowance, ScanTooLong
from farthing.store.subscriptions import text_of

_DEFAULT_LIMIT: Final = 100


class Beginning(NamedTuple):
    """`known` has the events of the backlog, if they were just read."""

    since: int
    backlog: bytes
    cursor: Position
    known: Mapping[str, StoredEvent] = NOTHING_KNOWN


def begin(agent: Agent, req: Req, owner: Owner, old: PaidSubscription | None = None) -> Beginning:
    """Where delivery begins. After a change of the filters of `old` it continues from the last
    number delivered: later events come from the log, so none is missed."""
    if req.resumption_token is not None:
        return _resumed(agent, req, owner, req.resumption_token)
    if old is None:
        return _anew(agent, req, owner, agent.changes.last_number())
    cursor = old.account.cursor
    return _anew(agent, req, owner, max(old.since, cursor.number if cursor.is_live else 0))


def _resumed(agent: Agent, req: Req, owner: Owner, text: str) -> Beginning:
    token = read_token(agent.settings.secret, text, owner=owner, now=agent.now)
    last = agent.changes.last_number()
    if token.position.is_live:
        return Beginning(max(last, token.position.number), b"", token.position)
    # The position is among stored events: use the same list of them if it is still kept.
    before = agent.paid_subscriptions.get(owner, token.subscription_id, agent.now)
    if before is None or not same_filters(before.filters, req.filters):
        return _anew(agent, req, owner, last)
    backlog = agent.paid_subscriptions.backlog(before)
    if backlog_size(backlog) != before.stored:
        return _anew(agent, req, owner, last)
    return Beginning(before.since, backlog, token.position)


def _anew(agent: Agent, req: Req, owner: Owner, last: int) -> Beginning:
    """Begin with the stored events that are numbered up to `last`. The others come from the log."""
    most = agent.settings.subscription_max_stored
    filters = [filter.with_limit(_DEFAULT_LIMIT, most) for filter in req.filters]
    pubkey = owner_pubkey(owner)
    visible = visible_to(frozenset() if pubkey is None else frozenset({pubkey}))
    try:
        allowance = ScanAllowance(agent.settings.max_scan)
        answer = agent.reader.answer(filters, text_of(filters), visible, allowance)
        found = list(islice(answer, most))
    except ScanTooLong:
        raise FilterRefused("a filter is too broad for its limit, narrow it") from None
    known = {event.id: event for event in found}
    # A stored event keeps its number, so it is read once for each event in the cache.
    unknown = [event.id for event in found if event.number is None]
    for event_id, number in agent.changes.numbers_of(unknown).items():
        known[event_id].number = number
    backlog = pack_backlog(
        (event.created_at, event.id)
        for event in found
        if event.number is not None and event.number <= last
    )
    return Beginning(last, backlog, START, known)
