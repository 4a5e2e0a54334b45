"""Events that free storage, and so cost nothing: a kind 5 that names a stored event of its author,
and a key's request to vanish (NIP-62)."""

from farthing.context import Agent
from farthing.nostr.deletions import targets_of
from farthing.nostr.events import Event
from farthing.nostr.filters import Filter
from farthing.nostr.kinds import UNDELETABLE_KINDS, Kind
from farthing.relay.removal import asks_us_to_vanish


def may_give_room_back(event: Event) -> bool:
    return event.kind in UNDELETABLE_KINDS


def gives_room_back(agent: Agent, event: Event) -> bool:
    if event.kind == Kind.REQUEST_TO_VANISH:
        return _may_vanish(agent, event)
    return _names_own(agent, event)


def _names_own(agent: Agent, deletion: Event) -> bool:
    """Whether this deletion removes at least one stored event of its author. Event ids are checked
    first: an address costs two reads."""
    targets, most = targets_of(deletion), agent.settings.max_free_targets
    ids, addresses = targets.ids[:most], targets.addresses[:most]
    stored = agent.events.get_many(ids).values() if ids else ()
    own = (each for each in stored if each.pubkey == deletion.pubkey)
    if any(each.kind not in UNDELETABLE_KINDS for each in own):
        return True
    versions = agent.events.at_addresses(addresses) if addresses else ()
    return any(each.created_at <= deletion.created_at for each in versions)


def _may_vanish(agent: Agent, request: Event) -> bool:
    """Whether there is something to remove: events of the key other than its requests, or gift
    wraps to it, up to the time of the request. What an earlier request covers is removed already,
    or will be. A request to another relay removes nothing here, so a key has only one such request
    for free."""
    own, kind = frozenset({request.pubkey}), Kind.REQUEST_TO_VANISH.value
    earlier = agent.reader.find(Filter(authors=own, kinds=frozenset({kind})))
    if asks_us_to_vanish(agent, request):
        asked = next((each for each in earlier if asks_us_to_vanish(agent, each.event)), None)
    elif any(earlier):
        return False
    else:
        asked = None
    since, until = asked.event.created_at + 1 if asked else None, request.created_at
    events = Filter(authors=own, since=since, until=until, limit=1)
    wraps = Filter(
        kinds=frozenset({Kind.GIFT_WRAP.value}), tags={"p": own}, since=since, until=until, limit=1
    )
    return any(agent.reader.find(events, lambda each: each.kind != kind)) or any(
        agent.reader.find(wraps)
    )
