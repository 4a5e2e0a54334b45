"""A client's side of a sync, for tests: what it has, what it asks, and what it learns."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from farthing.context import Agent
from farthing.nostr.events import Event
from farthing.nostr.negentropy import Initiator, SealedVector
from farthing.relay.sealed_sets import SEALED
from farthing.store.events import event_item
from farthing.store.table import BatchWrite, Put, Table
from tests.relay.world import Client

EMPTY = "6100000200"  # the first message of someone who has nothing


@dataclass
class Learned:
    have: set[str] = field(default_factory=set)
    need: set[str] = field(default_factory=set)
    replies: list[str] = field(default_factory=list)


class SyncEnded(Exception):
    """The relay has answered NEG-ERR; the frame is the argument."""


def store_at_once(agent: Agent, events: Iterable[Event]) -> None:
    """As the event store would leave them, in one commit."""
    writes: list[BatchWrite] = []
    for event in events:
        writes += agent.events.lists.postings(event, agent.now, event.expiration)
        writes.append(Put(Table.EVENTS, event.id, "e", event_item(event, agent.now)))
    agent.engine.write_batch(writes)


def sealed(events: Iterable[Event]) -> SealedVector:
    items = {(event.created_at, bytes.fromhex(event.id)) for event in events}
    return SealedVector.seal(items)


def reconcile(
    client: Client,
    filter: Any,
    events: Iterable[Event] = (),
    *,
    before: Callable[[int], object] = lambda number: None,
) -> Learned:
    """A whole sync; `before` is called with the number of each message before it is sent."""
    learned = Learned()
    initiator = Initiator(sealed(events))
    message: bytes | None = initiator.initiate()
    head: tuple[Any, ...] = ("NEG-OPEN", "sync", filter)
    while message is not None:
        before(len(learned.replies))
        (frame,) = client.send(*head, message.hex())
        if frame[0] == "NEG-ERR":
            raise SyncEnded(frame)
        assert frame[:2] == ["NEG-MSG", "sync"]
        learned.replies.append(frame[2])
        message, have, need = initiator.reconcile(bytes.fromhex(frame[2]))
        learned.have.update(each.hex() for each in have)
        learned.need.update(each.hex() for each in need)
        head = ("NEG-MSG", "sync")
    client.send("NEG-CLOSE", "sync")
    return learned


def members(client: Client, filter: Any) -> set[str]:
    """The ids of the relay's set for a filter."""
    return reconcile(client, filter).need


def another_container() -> None:
    """What the next message finds is what is stored."""
    SEALED.clear()
