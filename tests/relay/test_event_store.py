"""The event store: what is kept, replaced and deleted."""

import pytest

from farthing.context import Agent
from farthing.nostr.events import Event
from farthing.nostr.filters import parse_filter
from farthing.store import tombstones
from farthing.store.events import Outcome
from farthing.store.postings import Lists, sort_key
from farthing.store.spaces import NOSTR
from farthing.store.table import Delete, Query, Table, read_all
from tests.relay.world import START, Clock, hex_id, made

ME, STRANGER = "a" * 64, "b" * 64
LOW, MIDDLE, HIGH = hex_id(1), hex_id(2), hex_id(3)


def found(agent: Agent, **filter: object) -> list[str]:
    return [event.id for event in agent.reader.find(parse_filter(filter))]


def deletion(*tags: list[str], pubkey: str = ME, created_at: int = START, **fields: str) -> Event:
    return made(pubkey=pubkey, kind=5, tags=tags, created_at=created_at, **fields)


class TestRegular:
    def test_is_found_through_every_index(self, agent: Agent) -> None:
        event = made(tags=[["t", "x"], ["e", LOW], ["t", "y" * 300], ["x"], ["long", "z"]])

        assert agent.events.save(event) is Outcome.STORED

        for filter in (
            {"ids": [event.id]},
            {"authors": [ME]},
            {"authors": [ME], "kinds": [1]},
            {"kinds": [1]},
            {"#t": ["x"]},
            {"#t": ["y" * 300]},
            {"#e": [LOW]},
            {},
        ):
            assert found(agent, **filter) == [event.id], filter

    def test_a_second_time_is_a_duplicate(self, agent: Agent) -> None:
        event = made()
        agent.events.save(event)

        assert agent.events.save(event) is Outcome.DUPLICATE
        assert found(agent) == [event.id]

    def test_comes_back_as_it_was(self, agent: Agent) -> None:
        event = made(tags=[["t", 'a"b\\\n😀\x00']])
        agent.events.save(event)

        stored = agent.events.get(event.id)

        assert stored is not None
        assert stored.json == event.to_json()
        assert stored.event == event

    def test_an_ephemeral_one_is_never_stored(self, agent: Agent) -> None:
        with pytest.raises(ValueError, match="ephemeral"):
            agent.events.save(made(kind=20000))

    def test_newest_first_and_lowest_id_first_among_equals(self, agent: Agent) -> None:
        for id, created_at in ((HIGH, 5), (LOW, 5), (MIDDLE, 5), (hex_id(4), 4), (hex_id(5), 6)):
            agent.events.save(made(id=id, created_at=created_at))

        assert found(agent) == [hex_id(5), LOW, MIDDLE, HIGH, hex_id(4)]

    def test_what_runs_beside_can_prevent_it(self, agent: Agent) -> None:
        def refuse() -> None:
            raise RuntimeError("no")

        for event in (made(), made(kind=0)):
            with pytest.raises(RuntimeError):
                agent.events.save(event, beside=refuse)

        assert found(agent) == []


class TestPostings:
    def test_sort_as_events_do(self) -> None:
        keys = [sort_key(9, LOW), sort_key(5, LOW), sort_key(5, HIGH), sort_key(0, LOW)]

        assert keys == sorted(keys)

    def test_one_for_each_way_to_ask(self) -> None:
        event = made(id=LOW, tags=[["t", "x"], ["t", "x"], ["e", "y"], ["zz", "z"], ["p"]])

        lists = [posting.pk for posting in Lists(NOSTR, 8).postings(event, 0, None)]

        assert lists == [f"a#{ME}", f"b#{ME}#1", "k#1#0", "z#0", "t#t#=x", "t#e#=y"]

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            (made(kind=0), made(kind=0, created_at=START + 1)),
            (made(id=LOW), made(kind=5, tags=[["e", LOW]])),
            (made(kind=0), made(kind=5, tags=[["a", f"0:{ME}:"]])),
        ],
    )
    def test_those_of_what_is_gone_are_taken_away(self, agent, old: Event, new: Event) -> None:
        agent.events.save(old)
        agent.events.save(new)

        for pk in agent.events.lists.of(old):
            rows = read_all(agent.engine, Query(Table.POSTINGS, pk))
            assert sort_key(old.created_at, old.id) not in [row.sk for row in rows]


@pytest.mark.parametrize("kind", [0, 3, 10002, 30023])
class TestVersions:
    def test_the_newer_one_replaces(self, agent: Agent, kind: int) -> None:
        old, new = made(kind=kind), made(kind=kind, created_at=START + 1)

        assert agent.events.save(old) is Outcome.STORED
        assert agent.events.save(new) is Outcome.STORED

        assert found(agent, kinds=[kind]) == [new.id]
        assert agent.events.get(old.id) is None

    def test_an_older_one_is_superseded(self, agent: Agent, kind: int) -> None:
        old, new = made(kind=kind), made(kind=kind, created_at=START + 1)
        agent.events.save(new)

        assert agent.events.save(old) is Outcome.SUPERSEDED
        assert found(agent) == [new.id]

    @pytest.mark.parametrize(
        ("order", "outcome"),
        [((LOW, HIGH), Outcome.SUPERSEDED), ((HIGH, LOW), Outcome.STORED)],
    )
    def test_of_equals_the_lowest_id_stays(self, agent, kind, order, outcome) -> None:
        first, second = (made(id=id, kind=kind) for id in order)
        agent.events.save(first)

        assert agent.events.save(second) is outcome
        assert found(agent) == [LOW]

    def test_the_same_one_is_a_duplicate(self, agent: Agent, kind: int) -> None:
        event = made(kind=kind)
        agent.events.save(event)

        assert agent.events.save(event) is Outcome.DUPLICATE

    def test_others_are_left_alone(self, agent: Agent, kind: int) -> None:
        mine, theirs = made(kind=kind), made(kind=kind, pubkey=STRANGER)

        assert agent.events.save(mine) is Outcome.STORED
        assert agent.events.save(theirs) is Outcome.STORED
        assert sorted(found(agent)) == sorted([mine.id, theirs.id])


def test_addressable_events_are_told_apart_by_d(agent: Agent) -> None:
    events = [made(kind=30023, tags=[["d", d]]) for d in ("x", "y", "x" * 300, "x" * 301, "")]
    for event in events:
        assert agent.events.save(event) is Outcome.STORED
    same = made(kind=30023, tags=[["e", "y"]], created_at=START + 1)  # no d is the empty d

    assert agent.events.save(same) is Outcome.STORED

    assert sorted(found(agent)) == sorted([*(event.id for event in events[:4]), same.id])


class TestDeletionById:
    @pytest.mark.parametrize("kind", [1, 0, 30023])
    def test_the_authors_own_event_is_gone_and_stays_so(self, agent: Agent, kind: int) -> None:
        event = made(kind=kind)
        agent.events.save(event)

        removal = deletion(["e", event.id])
        agent.events.save(removal)

        assert found(agent) == [removal.id]
        assert agent.events.save(event) is Outcome.DELETED
        assert found(agent) == [removal.id]

    def test_a_strangers_event_stays(self, agent: Agent) -> None:
        event = made(pubkey=STRANGER)
        agent.events.save(event)

        agent.events.save(deletion(["e", event.id]))

        assert event.id in found(agent)
        assert agent.events.save(event) is Outcome.DUPLICATE

    @pytest.mark.parametrize("kind", [1, 0, 30023])
    def test_a_deletion_may_come_first(self, agent: Agent, kind: int) -> None:
        event = made(kind=kind)
        agent.events.save(deletion(["e", event.id]))

        assert agent.events.save(event) is Outcome.DELETED
        assert event.id not in found(agent)

    @pytest.mark.parametrize("kind", [1, 0, 30023])
    def test_a_strangers_deletion_that_comes_first_does_nothing(self, agent, kind) -> None:
        event = made(kind=kind)
        removal = deletion(["e", event.id], pubkey=STRANGER)
        agent.events.save(removal)

        assert agent.events.save(event) is Outcome.STORED
        agent.events.save(removal)  # once more, now that the event is there

        assert event.id in found(agent)

    def test_of_two_deletions_that_come_first_the_authors_counts(self, agent: Agent) -> None:
        event = made()
        agent.events.save(deletion(["e", event.id], pubkey=STRANGER))
        agent.events.save(deletion(["e", event.id]))

        assert agent.events.save(event) is Outcome.DELETED

    @pytest.fixture
    def few_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A tombstone has room for few names: to fill it takes fewer events."""
        monkeypatch.setattr(tombstones, "_MOST_NAMED", 3)

    @pytest.mark.usefixtures("few_named")
    @pytest.mark.parametrize("kind", [1, 0])
    @pytest.mark.parametrize("before", [0, 7])
    def test_any_number_of_strangers_does_not_keep_the_author_from_it(
        self, agent: Agent, kind: int, before: int
    ) -> None:
        """Whether they come before the author's own deletion or after it."""
        event = made(kind=kind)
        strangers = [deletion(["e", event.id], pubkey=hex_id(number)) for number in range(7)]
        for each in (*strangers[:before], deletion(["e", event.id]), *strangers[before:]):
            agent.events.save(each)

        assert agent.events.save(event) is Outcome.DELETED
        assert event.id not in found(agent)

    @pytest.mark.usefixtures("few_named")
    def test_strangers_alone_delete_nothing(self, agent: Agent) -> None:
        event = made()
        for number in range(7):
            agent.events.save(deletion(["e", event.id], pubkey=hex_id(number)))

        assert agent.events.save(event) is Outcome.STORED
        agent.events.save(deletion(["e", event.id]))
        assert agent.events.save(event) is Outcome.DELETED

    def test_one_key_counts_once(self, agent: Agent) -> None:
        event = made()
        for number in range(7):
            agent.events.save(deletion(["e", event.id], pubkey=STRANGER, created_at=START + number))

        assert agent.engine.get(Table.EVENTS, event.id, "e") == {"by": [STRANGER]}

    def test_a_newer_version_may_follow(self, agent: Agent) -> None:
        old, new = made(kind=0), made(kind=0, created_at=START + 1)
        agent.events.save(old)
        agent.events.save(deletion(["e", old.id], created_at=START + 9))

        assert agent.events.save(new) is Outcome.STORED
        assert agent.events.save(old) is Outcome.SUPERSEDED
        assert new.id in found(agent)

    def test_a_deletion_deletes_no_deletion(self, agent: Agent) -> None:
        first = deletion(["e", LOW])
        agent.events.save(first)

        agent.events.save(deletion(["e", first.id]))

        assert first.id in found(agent)
        assert agent.events.save(made(id=LOW)) is Outcome.DELETED

    def test_a_deletion_does_not_delete_a_later_deletion(self, agent: Agent) -> None:
        late = deletion(["e", LOW], id=HIGH)
        agent.events.save(deletion(["e", late.id]))

        assert agent.events.save(late) is Outcome.STORED
        assert agent.events.save(made(id=LOW)) is Outcome.DELETED

    def test_a_request_to_vanish_stays_too(self, agent: Agent) -> None:
        request, late = made(kind=62), made(kind=62)
        agent.events.save(request)

        agent.events.save(deletion(["e", request.id], ["e", late.id]))

        assert request.id in found(agent)
        assert agent.events.save(late) is Outcome.STORED

    @pytest.mark.usefixtures("few_named")
    @pytest.mark.parametrize("strangers", [0, 7])
    @pytest.mark.parametrize("kind", [1, 5, 62])
    def test_what_the_operator_has_removed_does_not_come_back(
        self, agent: Agent, kind: int, strangers: int
    ) -> None:
        event = made(kind=kind)
        agent.events.save(event)
        assert agent.events.remove(event.id)
        for number in range(strangers):
            agent.events.save(deletion(["e", event.id], pubkey=hex_id(number)))

        assert agent.events.save(event) is Outcome.DELETED

    def test_several_at_once_and_what_makes_no_sense(self, agent: Agent) -> None:
        events = [made() for _ in range(3)]
        for event in events:
            agent.events.save(event)

        removal = deletion(
            *(["e", event.id] for event in events), ["e", "nonsense"], ["e"], ["e", events[0].id]
        )
        assert agent.events.save(removal) is Outcome.STORED

        assert found(agent) == [removal.id]

    def test_one_that_ended_halfway_is_finished_when_sent_again(self, agent: Agent) -> None:
        event = made()
        removal = deletion(["e", event.id])
        agent.events.save(removal)
        # As if the process had died right after the kind 5 itself was stored.
        agent.engine.write(Delete(Table.EVENTS, event.id, "e"))
        agent.events.save(event)

        assert agent.events.save(removal) is Outcome.DUPLICATE
        assert found(agent) == [removal.id]


class TestDeletionByAddress:
    @pytest.mark.parametrize(
        ("kind", "tags", "d"), [(0, [], ""), (10002, [], ""), (30023, [["d", "a:b"]], "a:b")]
    )
    def test_versions_up_to_it_are_gone_and_newer_ones_welcome(self, agent, kind, tags, d) -> None:
        old = made(kind=kind, tags=tags)
        at_the_same_time = made(kind=kind, tags=tags, created_at=START + 5)
        newer = made(kind=kind, tags=tags, created_at=START + 6)
        agent.events.save(old)

        removal = deletion(["a", f"{kind}:{ME}:{d}"], created_at=START + 5)
        agent.events.save(removal)

        assert found(agent) == [removal.id]
        assert agent.events.save(old) is Outcome.DELETED
        assert agent.events.save(at_the_same_time) is Outcome.DELETED
        assert agent.events.save(newer) is Outcome.STORED
        assert found(agent) == [newer.id, removal.id]

    def test_a_version_that_is_newer_stays(self, agent: Agent) -> None:
        event = made(kind=0, created_at=START + 1)
        agent.events.save(event)

        agent.events.save(deletion(["a", f"0:{ME}:"]))

        assert event.id in found(agent)
        assert agent.events.save(event) is Outcome.DUPLICATE

    def test_a_deletion_may_come_before_its_event(self, agent: Agent) -> None:
        agent.events.save(deletion(["a", f"30023:{ME}:x"], created_at=START + 5))

        event = made(kind=30023, tags=[["d", "x"]])
        assert agent.events.save(event) is Outcome.DELETED

    def test_the_latest_of_several_counts(self, agent: Agent) -> None:
        for created_at in (START, START + 9, START + 3):
            agent.events.save(deletion(["a", f"0:{ME}:"], created_at=created_at))

        assert agent.events.save(made(kind=0, created_at=START + 9)) is Outcome.DELETED
        assert agent.events.save(made(kind=0, created_at=START + 10)) is Outcome.STORED

    @pytest.mark.parametrize(
        "address",
        [
            f"0:{STRANGER}:",
            f"0:{ME}",
            f"0:{ME}:d",  # a replaceable has no d
            f"1:{ME}:",
            f"-0:{ME}:",
            f"\u0660:{ME}:",
            f"{10**30}:{ME}:",
            "0",
            "",
            "::",
        ],
    )
    def test_anything_else_deletes_nothing(self, agent: Agent, address: str) -> None:
        events = [made(kind=0), made(kind=0, pubkey=STRANGER), made()]
        for event in events:
            agent.events.save(event)

        agent.events.save(deletion(["a", address], created_at=START + 9))

        assert {event.id for event in events} <= set(found(agent))


class TestExpiration:
    @pytest.mark.parametrize("kind", [1, 0])
    def test_an_expired_event_is_not_returned(self, agent, clock: Clock, kind: int) -> None:
        event = made(kind=kind, tags=[["expiration", str(START + 10)]])
        agent.events.save(event)

        clock.now = START + 9.9
        assert found(agent, kinds=[kind]) == found(agent, ids=[event.id]) == [event.id]
        clock.now = START + 10
        assert found(agent, kinds=[kind]) == found(agent, ids=[event.id]) == []
        assert agent.events.get(event.id) is None

    def test_a_version_may_follow_an_expired_one(self, agent: Agent, clock: Clock) -> None:
        agent.events.save(made(kind=0, tags=[["expiration", str(START + 10)]]))
        clock.now = START + 20
        newer = made(kind=0, created_at=START + 20)

        assert agent.events.save(newer) is Outcome.STORED
        assert found(agent) == [newer.id]
