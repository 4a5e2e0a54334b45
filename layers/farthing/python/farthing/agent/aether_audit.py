"""The audit of Aether events. Each event is unaltered since its author signed it, and is paid for
unless it was free. Each capability has counted at least the events that name it."""

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

import orjson

from farthing.aether.errors import AetherError
from farthing.aether.events import Event, compute_id, parse_event
from farthing.context import Agent
from farthing.relay.aether.owner import owner_keys
from farthing.store.capabilities import REFERENCE, Capabilities
from farthing.store.events import EventRecord
from farthing.store.payment import OWNER
from farthing.store.postings import posting_of
from farthing.store.receipts import FREE
from farthing.store.spaces import AETHER
from farthing.store.table import Query, Table, read_all

if TYPE_CHECKING:
    from farthing.agent.audit import Audit

_EVENTS_AT_ONCE = 100


def audit_aether_events(agent: Agent, result: "Audit") -> None:
    used: Counter[str] = Counter()
    for record in _stored(agent):
        result.events += 1
        if not _is_unaltered(record):
            result.differ(f"Aether event {record.id} has been altered since it was stored")
        payment = record.payment
        if payment is None or payment.startswith(FREE):
            if _ought_to_be_paid(agent, record):
                result.differ(f"Aether event {record.id} is stored without payment")
        elif payment.startswith(REFERENCE):
            used[payment.removeprefix(REFERENCE)] += 1
        elif payment != OWNER.reference and (payment, record.id) not in result.paid_events:
            result.differ(f"Aether event {record.id} names a payment without a receipt")
    capabilities = Capabilities(agent.engine)
    for token, number in used.items():
        # A replaced event is gone, but the use that it counted remains.
        if capabilities.uses(token) < number:
            result.differ(f"capability {token} has stored more events than its uses")


def _stored(agent: Agent) -> Iterator[EventRecord[Event]]:
    events = agent.kept(AETHER).events
    for pk in events.lists.everything():
        rows = iter(read_all(agent.engine, Query(Table.POSTINGS, pk, limit=_EVENTS_AT_ONCE)))
        while some := [posting_of(row).id for row in islice(rows, _EVENTS_AT_ONCE)]:
            yield from events.get_many(some).values()


def _is_unaltered(record: EventRecord[Event]) -> bool:
    """Whether the event still hashes to its id, and the fields stored beside the event agree with
    it."""
    try:
        event = parse_event(orjson.loads(record.json))
    except (AetherError, ValueError):
        return False
    computed = compute_id(event.pubkey, event.created_at, event.kind, event.tags, event.content)
    kept = (record.id, record.pubkey, record.kind, record.created_at)
    return kept == (computed, event.pubkey, event.kind, event.created_at)


def _ought_to_be_paid(agent: Agent, record: EventRecord[Event]) -> bool:
    is_owners = record.pubkey == owner_keys(agent).pubkey
    return not is_owners and agent.settings.aether_tariff.may_charge(record.kind)
