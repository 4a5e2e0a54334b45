"""Catching up at a relay in each of the ways there are, and with relays that do not play fair."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farthing.agent import catching_up
from farthing.agent.catching_up import Abilities, CatchUp, PagedRead
from farthing.agent.feeds import Reading, caching
from farthing.agent.intake import Intake, TooManyFaults
from farthing.context import Agent
from farthing.nostr.events import Event, public_key_of
from farthing.nostr.filters import Filter, parse_filter
from farthing.nostr.negentropy import Initiator, Responder, SealedVector
from farthing.ports.relays import Numbered, Published, RelayFailed, RelayRefused
from farthing.store.feeds import FeedState
from farthing.store.sqlite import SqliteEngine
from tests.relay.world import ALICE, BOB, OWNER, START, Clock, make_agent, signed

ALICE_KEY, BOB_KEY = public_key_of(ALICE), public_key_of(BOB)
URL = "ws://relay.example"
DAY = 24 * 3600


def plain(event: Event) -> dict[str, Any]:
    return {**event.as_dict(), "tags": [list(tag) for tag in event.tags]}


class Session:
    """A relay with numbers, sets and pages, no more events on a page than `most`."""

    def __init__(self, events: Sequence[Event], most: int = 500) -> None:
        self.events = list(events)
        self.most = most
        self.refuses: set[str] = set()
        self.asked: list[str] = []
        self.fails_after = 10**9

    def _matching(self, filter: Mapping[str, Any]) -> list[Event]:
        wanted: Filter = parse_filter(dict(filter))
        found = [event for event in self.events if wanted.matches(event)]
        return sorted(found, key=lambda event: (-event.created_at, event.id))

    def read(self, filters: Sequence[Mapping[str, Any]]) -> Iterator[Any]:
        self.asked.append("read")
        [filter] = filters
        for event in self._matching(filter)[: min(filter.get("limit", 500), self.most)]:
            self.fails_after -= 1
            if self.fails_after < 0:
                raise RelayFailed("gone")
            yield plain(event)

    def changes(self, filter: Mapping[str, Any], since: int) -> Iterator[Numbered]:
        self.asked.append("changes")
        if "changes" in self.refuses:
            raise RelayRefused("no")
        wanted, sent, last = parse_filter(dict(filter)), 0, since
        for number, event in enumerate(self.events, 1):
            if number > since and wanted.matches(event):
                if sent == self.most:
                    yield Numbered(last, truncated=True)
                    return
                yield Numbered(number, plain(event))
                sent, last = sent + 1, number
        yield Numbered(len(self.events))

    def publish(self, event: Mapping[str, Any]) -> Published:
        return Published(True, "")

    def reconcile(self, filter: Mapping[str, Any], ours: SealedVector) -> Iterator[str]:
        self.asked.append("reconcile")
        if "reconcile" in self.refuses:
            raise RelayRefused("no")
        items = [(event.created_at, bytes.fromhex(event.id)) for event in self._matching(filter)]
        responder, initiator = Responder(SealedVector.seal(items), 0), Initiator(ours, 0)
        message: bytes | None = initiator.initiate()
        while message is not None:
            message, _, need = initiator.reconcile(responder.reconcile(message))
            yield from (each.hex() for each in need)


@pytest.fixture
def agent(sqlite: SqliteEngine, clock: Clock) -> Agent:
    return make_agent(
        sqlite, clock, secret_key=OWNER.hex(), price_per_byte=10, follow_content="cache"
    )


@lru_cache
def note(number: int, secret: bytes = ALICE, ago: int = 100, kind: int = 1) -> Event:
    return signed(kind=kind, secret=secret, content=f"note {number}", created_at=START - ago)


def intake_of(agent: Agent, reading: Reading | None = None, faults: int = 50) -> Intake:
    reading = reading or caching(agent)
    authors = [ALICE_KEY, BOB_KEY]
    return Intake(authors, agent.settings.follow_kinds, reading.known, reading.take, faults)


def look(
    agent: Agent, session: Session, can: Abilities, state: FeedState | None = None
) -> FeedState:
    before = state or agent.feeds.state(URL)
    catch_up = CatchUp(agent, session, intake_of(agent), can, True, agent.feeds.keep)  # type: ignore[arg-type]
    return catch_up.run(before, [ALICE_KEY, BOB_KEY])


def stored(agent: Agent) -> set[str]:
    return {each.id for each in agent.reader.find(Filter())}


WAYS = [
    (Abilities(), "req"),
    (Abilities(negentropy=True), "negentropy"),
    (Abilities(changes=True, negentropy=True), "changes"),
]


@pytest.mark.parametrize(("can", "way"), WAYS)
def test_every_way_brings_everything_and_goes_on(
    agent: Agent, clock: Clock, can: Abilities, way: str
) -> None:
    session = Session([note(number, ago=number * 50) for number in range(60)], most=25)
    assert look(agent, session, can).way == way
    assert stored(agent) == {event.id for event in session.events}

    clock.now += 10
    # More in one second than a page holds, though not of one author.
    session.events += [note(number, (ALICE, BOB)[number % 2], ago=-5) for number in range(30)]
    look(agent, session, can)
    assert stored(agent) == {event.id for event in session.events}
    # And the relay whose feed is behind us is not read from the beginning.
    session.asked.clear()
    look(agent, session, can)
    assert len(session.asked) <= 12


@pytest.mark.parametrize("can", [can for can, _ in WAYS])
def test_a_key_that_is_new_is_read_from_the_beginning(agent: Agent, can: Abilities) -> None:
    session = Session([note(1, ALICE, ago=20 * DAY), note(2, BOB, ago=20 * DAY)])
    one = CatchUp(agent, session, intake_of(agent), can, True, agent.feeds.keep)  # type: ignore[arg-type]
    state = one.run(agent.feeds.state(URL), [ALICE_KEY])
    assert stored(agent) == {session.events[0].id}
    look(agent, session, can, state)
    assert stored(agent) == {event.id for event in session.events}


def test_a_relay_that_counts_anew_is_read_anew(agent: Agent) -> None:
    can = Abilities(changes=True)
    look(agent, Session([note(number) for number in range(10)]), can)
    assert agent.feeds.state(URL).number == 10
    restored = Session([note(77), note(78)])
    assert look(agent, restored, can).number == 2
    assert {note(77).id, note(78).id} <= stored(agent)


@pytest.mark.parametrize("refused", ["changes", "reconcile"])
def test_what_a_relay_refuses_is_done_in_another_way(agent: Agent, refused: str) -> None:
    session = Session([note(number) for number in range(10)])
    session.refuses = {refused}
    look(agent, session, Abilities(changes=True, negentropy=True))
    session.events.append(note(50, ago=5))
    look(agent, session, Abilities(changes=True, negentropy=True))
    assert stored(agent) == {event.id for event in session.events}


def test_a_broken_look_at_the_past_goes_on_where_it_broke(agent: Agent) -> None:
    session = Session([note(number, ago=600 * number) for number in range(200)], most=30)
    looks = 0
    while stored(agent) != {event.id for event in session.events}:
        session.fails_after, looks = 70, looks + 1
        assert looks < 10, "it does not go on"
        try:
            look(agent, session, Abilities())
        except RelayFailed:
            continue
    assert looks > 2


def test_deletions_and_newer_versions_follow(agent: Agent) -> None:
    first = note(1)
    profiles = [
        signed(kind=0, secret=ALICE, content=name, created_at=START - age)
        for name, age in (("old", 400 * DAY), ("new", 300 * DAY))
    ]
    session = Session([first, profiles[0]])
    look(agent, session, Abilities(changes=True))
    assert stored(agent) == {first.id, profiles[0].id}
    session.events += [
        profiles[1],
        signed(kind=5, secret=ALICE, tags=[["e", first.id]], created_at=START),
    ]
    look(agent, session, Abilities(changes=True))
    assert profiles[1].id in stored(agent)
    assert not {first.id, profiles[0].id} & stored(agent)


def test_what_a_relay_was_not_asked_for_counts_against_it(agent: Agent) -> None:
    intake = intake_of(agent, faults=2)
    intake.offer(plain(signed(kind=1, secret=OWNER)))  # of somebody else
    intake.offer({"id": "nonsense"})
    with pytest.raises(TooManyFaults):
        intake.offer(plain(signed(kind=4, secret=ALICE)))  # private
    assert stored(agent) == set()


def test_a_forged_event_is_not_kept(agent: Agent) -> None:
    intake = intake_of(agent)
    intake.offer({**plain(note(1)), "content": "other words"})
    intake.offer({**plain(note(2)), "sig": "0" * 128})
    intake.offer(plain(note(3)))
    intake.flush()
    assert stored(agent) == {note(3).id}
    assert (counts := intake.counts()).faults == 2
    assert counts.stored == 1


def test_a_key_takes_no_more_bytes_than_it_may(agent: Agent, clock: Clock) -> None:
    size = len(note(10).to_json().encode())
    small = replace(agent, settings=replace(agent.settings, follow_bytes=5 * size + 3))
    look(small, Session([note(number) for number in range(10, 30)]), Abilities())
    assert len(stored(agent)) == 5
    # The room is back when those events have gone.
    clock.now += 31 * DAY + 1
    look(small, Session([signed(kind=1, secret=ALICE, created_at=START + 31 * DAY)]), Abilities())
    assert len(stored(agent)) == 1


def test_what_is_old_private_or_protected_is_not_kept(agent: Agent) -> None:
    protected = signed(kind=1, secret=ALICE, tags=[["-"]], created_at=START)
    reading = caching(agent)
    reading.take([note(1, ago=31 * DAY), protected])
    assert stored(agent) == set()


def test_a_page_that_our_own_limit_cuts_is_not_the_end_of_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also behind a second that was read at once, with more events than a page has."""
    monkeypatch.setattr(catching_up, "_PAGE", 25)
    seconds = [40, 30]
    events = [
        Event(f"{at:064x}", ALICE_KEY, START - ago, 1, (), "", "0" * 128)
        for at, ago in enumerate(ago for ago, many in enumerate(seconds) for _ in range(many))
    ]
    read: set[str] = set()

    class Offered:
        def offer(self, value: dict[str, Any]) -> Event:
            read.add(value["id"])
            return events[int(value["id"], 16)]

    filter = {"authors": [ALICE_KEY], "kinds": [1]}
    PagedRead(Session(events, 500), Offered()).run(filter, START - 20)  # type: ignore[arg-type]
    assert len(read) == sum(seconds)


@settings(max_examples=60, deadline=None)
@given(
    seconds=st.lists(
        st.tuples(st.integers(0, 12), st.booleans(), st.sampled_from([1, 6, 7])), max_size=150
    ),
    most=st.integers(20, 60),
)
def test_paging_misses_nothing_that_pages_can_hold(
    seconds: list[tuple[int, bool, int]], most: int
) -> None:
    """Beside a naive relay: whatever fits on a page by author, kind and second is read."""
    events = [
        Event(f"{at:064x}", ALICE_KEY if alice else BOB_KEY, START - ago, kind, (), "", "0" * 128)
        for at, (ago, alice, kind) in enumerate(seconds)
    ]
    session = Session(events, most)
    read: set[str] = set()

    class Offered:
        def offer(self, value: dict[str, Any]) -> Event:
            read.add(value["id"])
            return next(event for event in events if event.id == value["id"])

    filter = {"authors": [ALICE_KEY, BOB_KEY], "kinds": [1, 6, 7]}
    PagedRead(session, Offered()).run(filter, START - 20)  # type: ignore[arg-type]

    def crowded(event: Event) -> tuple[object, ...]:
        return event.pubkey, event.kind, event.created_at

    counts = {key: sum(crowded(each) == key for each in events) for key in map(crowded, events)}
    missing = {event.id for event in events} - read
    assert all(counts[crowded(event)] > most for event in events if event.id in missing)
