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
from farthing.ports.relays import Numbered, Published, RelayFailed, RelayRefused, TooMuchAsked
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
        self.most_synced = 10**9  # events of one sync
        self.frame = 0  # octets of a message of a sync
        self.says_truncated = True
        self.excludes_until = False  # as nostr-relay from PyPI, which knows no time beyond 32 bits

    def _matching(self, filter: Mapping[str, Any]) -> list[Event]:
        wanted: Filter = parse_filter(dict(filter))
        found = [event for event in self.events if wanted.matches(event)]
        if self.excludes_until and "until" in filter:
            until = filter["until"] if filter["until"] < 2**32 else 0
            found = [event for event in found if event.created_at < until]
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
        most = min(self.most, filter.get("limit", self.most))
        for number, event in enumerate(self.events, 1):
            if number > since and wanted.matches(event):
                if sent == most and self.says_truncated:
                    yield Numbered(last, truncated=True)
                    return
                if sent == most:
                    break
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
        if len(items) > self.most_synced:
            raise TooMuchAsked("RESULTS_TOO_BIG")
        responder = Responder(SealedVector.seal(items), self.frame)
        initiator = Initiator(ours, 0)
        message: bytes | None = initiator.initiate()
        while message is not None:
            self.asked.append("round")
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


def test_a_relay_that_excludes_until_is_read_whole(agent: Agent) -> None:
    session = Session([note(number, ago=7200 * (number // 15)) for number in range(200)], most=25)
    session.excludes_until = True
    session.fails_after = 25 * 2  # profiles are none, so this is after two pages
    with pytest.raises(RelayFailed):
        look(agent, session, Abilities())
    assert len(stored(agent)) == 50
    session.fails_after = 10**9
    look(agent, session, Abilities())
    assert stored(agent) == {event.id for event in session.events}


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


@pytest.mark.parametrize("says_truncated", [True, False])
def test_a_long_feed_is_read_a_page_at_a_time(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, says_truncated: bool
) -> None:
    """Also at a relay whose answer does not say that there is more."""
    monkeypatch.setattr(catching_up, "_PAGE", 10)
    session = Session([])
    session.says_truncated = says_truncated
    look(agent, session, Abilities(changes=True))
    session.events += [note(number) for number in range(35)]
    session.asked.clear()
    assert look(agent, session, Abilities(changes=True)).number == 35
    assert session.asked.count("changes") == 1 + 4
    assert stored(agent) == {event.id for event in session.events}


def test_what_a_sync_names_is_fetched_before_it_goes_on(agent: Agent) -> None:
    """However many there are, no more ids wait here than one message has."""
    session = Session([note(number) for number in range(1000)])
    session.frame = 4096 * 2
    look(agent, session, Abilities(negentropy=True))
    assert stored(agent) == {event.id for event in session.events}
    rounds = [at for at, what in enumerate(session.asked) if what == "round"]
    assert len(rounds) > 3
    assert set(session.asked[rounds[0] : rounds[-1]]) == {"round", "read"}


def test_a_sync_that_is_too_large_is_done_by_parts_of_the_time(agent: Agent) -> None:
    session = Session([note(number, ago=600 * number) for number in range(100)], most=25)
    session.most_synced = 10
    assert look(agent, session, Abilities(negentropy=True)).way == "negentropy"
    assert stored(agent) == {event.id for event in session.events}
    assert session.asked.count("reconcile") < 200


def test_a_relay_that_refuses_every_sync_is_asked_a_bounded_number_of_times(agent: Agent) -> None:
    session = Session([note(number) for number in range(10)])
    session.most_synced = -1
    assert look(agent, session, Abilities(negentropy=True)).way == "req"
    assert stored(agent) == {event.id for event in session.events}
    assert session.asked.count("reconcile") < 30


def test_a_second_that_no_page_can_hold_is_read_as_a_set(agent: Agent) -> None:
    session = Session([note(number) for number in range(70)], most=25)
    intake, kept = intake_of(agent), agent.feeds.keep
    look = CatchUp(agent, session, intake, Abilities(negentropy=True), False, kept)  # type: ignore[arg-type]
    state = look.run(agent.feeds.state(URL), [ALICE_KEY])
    assert stored(agent) == {event.id for event in session.events}
    assert (state.way, state.trouble) == ("req", "")


def test_a_second_that_cannot_be_told_apart_is_told(agent: Agent) -> None:
    session = Session([note(number) for number in range(70)], most=25)
    assert "in one second" in look(agent, session, Abilities()).trouble
    assert len(stored(agent)) == 25
    session.most = 100
    look(agent, session, Abilities())
    assert stored(agent) == {event.id for event in session.events}


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


def test_profiles_are_read_to_the_last_page(agent: Agent) -> None:
    """They may be older than anything else that is read, and more than a page holds."""
    profiles = [
        signed(kind=kind, secret=secret, created_at=START - (400 + kind % 7) * DAY)
        for secret in (ALICE, BOB)
        for kind in (0, 3, 10002, 10032)
    ]
    look(agent, Session(profiles, most=3), Abilities(changes=True))
    assert stored(agent) == {event.id for event in profiles}


def test_large_events_wait_in_smaller_batches(agent: Agent) -> None:
    sizes: list[int] = []

    def take(events: Sequence[Event]) -> int:
        sizes.append(len(events))
        return len(events)

    intake = intake_of(agent, Reading(lambda _: set(), take, stores=False))
    for number in range(4):
        content = f"{number}" * 600_000
        intake.offer(plain(signed(kind=1, secret=ALICE, content=content, created_at=START)))
    assert sizes == [2, 2]


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
    pages = PagedRead(Session(events, 500), Offered(), lambda *_: None)  # type: ignore[arg-type]
    pages.run(filter, START - 20)
    assert len(read) == sum(seconds)


@settings(max_examples=60)
@given(
    seconds=st.lists(
        st.tuples(st.integers(0, 12), st.booleans(), st.sampled_from([1, 6, 7])), max_size=150
    ),
    most=st.integers(20, 60),
    excludes_until=st.booleans(),
)
def test_paging_misses_nothing_that_pages_can_hold(
    seconds: list[tuple[int, bool, int]], most: int, excludes_until: bool
) -> None:
    """Beside a naive relay: whatever fits on a page by author, kind and second is read."""
    events = [
        Event(f"{at:064x}", ALICE_KEY if alice else BOB_KEY, START - ago, kind, (), "", "0" * 128)
        for at, (ago, alice, kind) in enumerate(seconds)
    ]
    session = Session(events, most)
    session.excludes_until = excludes_until
    read: set[str] = set()

    class Offered:
        def offer(self, value: dict[str, Any]) -> Event:
            read.add(value["id"])
            return next(event for event in events if event.id == value["id"])

    filter = {"authors": [ALICE_KEY, BOB_KEY], "kinds": [1, 6, 7]}
    told: set[int] = set()
    pages = PagedRead(session, Offered(), lambda _, second: told.add(second))  # type: ignore[arg-type]
    pages.run(filter, START - 20)

    def crowded(event: Event) -> tuple[object, ...]:
        return event.pubkey, event.kind, event.created_at

    counts = {key: sum(crowded(each) == key for each in events) for key in map(crowded, events)}
    missing = {event.id for event in events} - read
    assert all(counts[crowded(event)] > most for event in events if event.id in missing)
    assert {event.created_at for event in events if event.id in missing} <= told
