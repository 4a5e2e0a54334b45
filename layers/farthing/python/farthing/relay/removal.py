"""Removing stored events: by the operator, and for a key that asks to vanish (NIP-62).

The event and its index entries go, a tombstone stays. So receipts keep their event, numbers keep
their places, and a removed event does not come back.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice

from farthing.context import Agent
from farthing.nostr.events import Event
from farthing.nostr.filters import Filter
from farthing.nostr.kinds import Kind
from farthing.relay.moderation import rules_in_force
from farthing.store.events import StoredEvent
from farthing.store.rules import Removal

_AT_ONCE = 100
_FOR_EVER = 2**53
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
    """How many of the events were there."""
    return sum(agent.engine.together(*(partial(agent.events.remove, each) for each in ids)))


def remove_author(agent: Agent, pubkey: str) -> None:
    """Remove all that a key has written. The sweeper does what does not fit into this call."""
    _begin(agent, Removal(pubkey, _FOR_EVER))


def asks_us_to_vanish(agent: Agent, request: Event) -> bool:
    """Whether a request to vanish names this relay, or all."""
    return bool({*request.values("relay")} & {ALL_RELAYS, *_own_urls(agent)})


def vanish_if_asked(agent: Agent, request: Event) -> None:
    """Honour a request to vanish that names this relay, or all: what the key wrote until then goes,
    and the gift wraps to it."""
    if not asks_us_to_vanish(agent, request):
        return
    _begin(agent, Removal(request.pubkey, request.created_at, gift_wraps=True))


def _begin(agent: Agent, removal: Removal) -> None:
    """Remove what is here. The note stays for the sweeper, which also removes what was stored while
    other processes did not know of a ban yet."""
    rules_in_force(agent).book.begin_removal(removal)
    _remove_some(agent, removal)


def continue_removals(agent: Agent) -> int:
    """What the sweeper does: go on with removals that are not through. How many events went."""
    book = rules_in_force(agent).book
    removed = 0
    for removal in list(book.removals()):
        number = _remove_some(agent, removal)
        removed += number
        if number < agent.settings.max_removed_at_once:
            book.finish_removal(removal)
    return removed


def _remove_some(agent: Agent, removal: Removal) -> int:
    """Remove as many events as one call may."""
    most = agent.settings.max_removed_at_once
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
    """A request to vanish stays: it tells others that the key has vanished."""
    return (event.id for event in agent.reader.find(filter) if event.kind != Kind.REQUEST_TO_VANISH)


def _own_urls(agent: Agent) -> set[str]:
    """The relay's URL as people write it, with a slash at the end and without."""
    urls = (agent.settings.relay_url, agent.settings.http_url.replace("http", "ws", 1))
    return {form for url in urls if url for form in (url.rstrip("/"), url.rstrip("/") + "/")}
