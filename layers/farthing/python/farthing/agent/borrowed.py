"""Storing events of followed keys for a limited time: verified, unpaid, and within each key's daily
allowance of bytes.

A key's bytes are counted by the day. The count of a day expires together with the events of that
day.
"""

from collections.abc import Callable, Sequence

from farthing.context import Agent
from farthing.nostr.events import Event
from farthing.nostr.kinds import Keeping
from farthing.nostr.messages import Refused
from farthing.relay.policies import check_policies
from farthing.store.events import Outcome
from farthing.store.payment import BORROWED, Payment, PaymentRefused
from farthing.store.table import EXPIRES, Add, LessThan, Query, Table, read_all

DAY = 24 * 3600

RunAll = Callable[[Sequence[Callable[[], None]]], None]


def one_by_one(works: Sequence[Callable[[], None]]) -> None:
    for work in works:
        work()


def keep_borrowed(agent: Agent, events: Sequence[Event], run_all: RunAll) -> list[Event]:
    """Store events whose signatures have been checked. Returns the events that are new here.
    `run_all` may run the writes in parallel."""
    new: list[Event] = []
    wanted = [event for event in events if _may_be_kept(agent, event)]
    room = {pubkey: _room(agent, pubkey) for pubkey in {event.pubkey for event in wanted}}

    def keep(event: Event) -> None:
        if _save(agent, event, room[event.pubkey]) is Outcome.STORED:
            new.append(event)

    # Deletions are written after the events that they delete, and versions in their order.
    in_order = sorted(wanted, key=lambda event: event.created_at)
    run_all([lambda event=event: keep(event) for event in in_order])  # type: ignore[misc]
    return new


def _may_be_kept(agent: Agent, event: Event) -> bool:
    settings = agent.settings
    too_old = event.created_at < agent.now - settings.follow_days * DAY
    if event.keeping is Keeping.EPHEMERAL or event.is_protected:
        return False
    if too_old and event.keeping is Keeping.REGULAR:
        return False
    try:
        check_policies(agent, event)
    except Refused:
        return False
    return True


def _bytes_of(pubkey: str) -> str:
    return f"borrowed#{pubkey}"


def _room(agent: Agent, pubkey: str) -> int:
    """The key's bytes that may be stored today, including the bytes stored today already."""
    today = f"{agent.now // DAY:08d}"
    days = read_all(agent.engine, Query(Table.LEDGER, _bytes_of(pubkey)))
    taken: int = sum(day.item["bytes"] for day in days if day.sk != today)
    return agent.settings.follow_bytes - taken


def _save(agent: Agent, event: Event, room: int) -> Outcome | None:
    size = len(event.to_json().encode())
    if size > room:
        return None
    today = agent.now // DAY
    # To the end of the day, so that a day's events go with its count.
    expires = (today + 1 + agent.settings.follow_days) * DAY
    count = Add(
        Table.LEDGER, _bytes_of(event.pubkey), f"{today:08d}", {"bytes": size},
        {EXPIRES: expires}, LessThan("bytes", room - size + 1),
    )  # fmt: skip
    try:
        return agent.events.save(event, payment=Payment([count], BORROWED, expires))
    except PaymentRefused:
        return None
