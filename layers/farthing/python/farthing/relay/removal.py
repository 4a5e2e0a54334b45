"""Removing stored events: by the operator, and for a key that asks to vanish (NIP-62).

The event and its index entries are deleted, and a tombstone stays. So receipts and numbers keep
their reference, and a removed event cannot be stored again.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice

from farthing.context import Agent
from farthing.nostr.events import Event, is_hex64
from farthing.nostr.filters import Filter
from farthing.nostr.kinds import Kind
from farthing.nostr.messages import Prefix, Refused
from farthing.relay.moderation import rules, rules_in_force, set_rule
from farthing.store.events import StoredEvent
from farthing.store.rules import Removal, Subject

_AT_ONCE = 100
_FOR_EVER = 2**53
_MOST_RECEIVERS = 10
_MOST_REQUESTS = 10
ALL_RELAYS = "ALL_RELAYS"


def remove_matching(
    agent: Agent, filter: Filter, *, dry_run: bool = False
) -> Iterator[StoredEvent]:
    """Remove the events that match, newest first, and yield each of them."""
    found = agent.reader.find(filter)
    while some := list(islice(found, _AT_ONCE)):
        if not dry_run:
            _remove(agent, (event.id for event in some))
        yield from some


def _remove(agent: Agent, ids: Iterable[str]) -> int:
    """Remove events by id. Returns how many of them were stored."""
    return sum(agent.engine.together(*(partial(agent.events.remove, each) for each in ids)))


def remove_author(agent: Agent, pubkey: str) -> None:
    """Remove all events of a key. The sweeper continues if one call is not enough."""
    _begin(agent, Removal(pubkey, _FOR_EVER))


def asks_us_to_vanish(agent: Agent, request: Event) -> bool:
    """Whether a request to vanish names this relay, or all relays."""
    return bool({*request.values("relay")} & {ALL_RELAYS, *_own_urls(agent)})


def vanish_if_asked(agent: Agent, request: Event, most: int | None = None) -> None:
    """Carry out a request to vanish that names this relay, or all relays: remove the key's events
    up to then, and the gift wraps to the key. The request itself has been stored. This is called
    before its OK, for at most `most` events, and again by the sequencer, which also sees requests
    from every other source."""
    if not asks_us_to_vanish(agent, request):
        return
    if not _anybody_vanished(agent):
        set_rule(agent, Subject.VANISHED, "anybody")
    _begin(agent, Removal(request.pubkey, request.created_at, gift_wraps=True), most)


def not_vanished(agent: Agent, event: Event) -> None:
    """Refuse an event from before its author's request to vanish, and a gift wrap to such a key,
    also if it was never stored here. Nothing is read from the store before the first request."""
    if not _anybody_vanished(agent) or event.kind == Kind.REQUEST_TO_VANISH:
        return
    keys = [event.pubkey]
    if event.kind == Kind.GIFT_WRAP:
        keys += [each for each in islice(event.values("p"), _MOST_RECEIVERS) if is_hex64(each)]
    for key in keys:
        asks = Filter(
            authors=frozenset({key}),
            kinds=frozenset({Kind.REQUEST_TO_VANISH.value}),
            since=event.created_at,
            limit=_MOST_REQUESTS,
        )
        if any(asks_us_to_vanish(agent, each.event) for each in agent.reader.find(asks)):
            raise Refused(Prefix.BLOCKED, f"{key[:8]} has asked to vanish (NIP-62)")


def _anybody_vanished(agent: Agent) -> bool:
    return bool(rules(agent).of(Subject.VANISHED))


def _begin(agent: Agent, removal: Removal, most: int | None = None) -> None:
    """Remove the stored events. The record of the removal stays for the sweeper, which also removes
    events that other processes stored before they knew of a ban."""
    rules_in_force(agent).book.begin_removal(removal)
    _remove_some(agent, removal, most or agent.settings.max_removed_at_once)


def continue_removals(agent: Agent) -> int:
    """Called by the sweeper: continue unfinished removals. Returns the number of removed events."""
    book = rules_in_force(agent).book
    removed = 0
    for removal in list(book.removals()):
        number = _remove_some(agent, removal, agent.settings.max_removed_at_once)
        removed += number
        if number < agent.settings.max_removed_at_once:
            book.finish_removal(removal)
    return removed


def _remove_some(agent: Agent, removal: Removal, most: int) -> int:
    removed = 0
    for filter in _filters(removal):
        while removed < most:
            some = list(islice(_removable(agent, filter), min(_AT_ONCE, most - removed)))
            if not some:
                break
            removed += _remove(agent, some)
    return removed


def _filters(removal: Removal) -> Iterator[Filter]:
    until = None if removal.until == _FOR_EVER else removal.until
    yield Filter(authors=frozenset({removal.pubkey}), until=until)
    if removal.gift_wraps:
        wraps = frozenset({Kind.GIFT_WRAP.value})
        tags = {"p": frozenset({removal.pubkey})}
        yield Filter(kinds=wraps, tags=tags, until=until)


def _removable(agent: Agent, filter: Filter) -> Iterator[str]:
    """The ids to remove. A request to vanish stays: it tells other relays that the key has
    vanished."""
    return (event.id for event in agent.reader.find(filter) if event.kind != Kind.REQUEST_TO_VANISH)


def _own_urls(agent: Agent) -> set[str]:
    """The relay's URL, with and without a slash at the end."""
    urls = (agent.settings.relay_url, agent.settings.http_url.replace("http", "ws", 1))
    return {form for url in urls if url for form in (url.rstrip("/"), url.rstrip("/") + "/")}
