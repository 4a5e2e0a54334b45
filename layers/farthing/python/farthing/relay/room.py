"""Events that give room back, and so are free: a kind 5 that names an event of its author's that is
stored here, and a key's request to vanish (NIP-62)."""

from farthing.context import Agent
from farthing.nostr.deletions import targets_of
from farthing.nostr.events import Event
from farthing.nostr.filters import Filter
from farthing.nostr.kinds import Kind
from farthing.relay.removal import asks_us_to_vanish


def may_give_room_back(event: Event) -> bool:
    return event.kind in (Kind.DELETION, Kind.REQUEST_TO_VANISH)


def gives_room_back(agent: Agent, event: Event) -> bool:
    if event.kind == Kind.REQUEST_TO_VANISH:
        return _may_vanish(agent, event)
    return _names_own(agent, event)


def _names_own(agent: Agent, deletion: Event) -> bool:
    """Whether one of the first targets is stored here and its author's own. Events first: an
    address costs two looks."""
    targets, most = targets_of(deletion), agent.settings.max_free_targets
    ids = targets.ids[:most]
    stored = agent.events.get_many(ids).values() if ids else ()
    if any(each.pubkey == deletion.pubkey and each.kind != Kind.DELETION for each in stored):
        return True
    addresses = targets.addresses[: max(0, most - len(ids))]
    return any(_is_at(agent, each, deletion.created_at) for each in addresses)


def _is_at(agent: Agent, address: str, until: int) -> bool:
    """Whether a version that the deletion covers is stored at the address."""
    stored = agent.events.at_address(address)
    return stored is not None and stored.created_at <= until


def _may_vanish(agent: Agent, request: Event) -> bool:
    """Whether the key has events here beside its requests. A request that this relay does not
    honour leaves them here, so the key has only one such request for free."""
    own, asks = frozenset({request.pubkey}), frozenset({Kind.REQUEST_TO_VANISH.value})
    if not asks_us_to_vanish(agent, request):
        before = Filter(authors=own, kinds=asks, limit=1)
        if any(agent.reader.find(before)):
            return False
    events = Filter(authors=own, limit=1)
    return any(agent.reader.find(events, lambda each: each.kind not in asks))
