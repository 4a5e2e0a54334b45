"""The operator's rules, removals by the operator, and requests to vanish (NIP-62, NIP-86)."""

from dataclasses import replace

import pytest

from farthing.agent.audit import audit
from farthing.agent.sweep import sweep
from farthing.context import Agent
from farthing.nostr.events import Event, public_key_of
from farthing.nostr.filters import Filter
from farthing.nostr.management import Call, InvalidCall, Method, parse_call
from farthing.nostr.messages import Refused
from farthing.relay.manage import (
    METHODS,
    ban_event,
    ban_key,
    manage,
    reported_events,
    supported_methods,
    unban,
)
from farthing.relay.moderation import is_blocked, settings_in_force
from farthing.relay.policies import check_policies
from farthing.relay.removal import remove_matching
from farthing.relay.sequence import number_all
from farthing.store.changes import Arrival
from farthing.store.events import Outcome
from farthing.store.spaces import NOSTR
from farthing.store.sqlite import SqliteEngine
from tests.relay.world import ALICE, BOB, OWNER, Clock, hex_id, make_agent, signed

ALICE_KEY, BOB_KEY = public_key_of(ALICE), public_key_of(BOB)


@pytest.fixture
def agent(sqlite: SqliteEngine, clock: Clock) -> Agent:
    return make_agent(sqlite, clock, secret_key=OWNER.hex(), relay_url="wss://relay.example")


def store(agent: Agent, *events: Event) -> None:
    for event in events:
        assert agent.events.save(event) is Outcome.STORED
    number_all(agent, {NOSTR: [Arrival(each.id, each.pubkey, each.kind) for each in events]})


def contents(agent: Agent, **filter: object) -> set[str]:
    wanted = Filter(**filter)  # type: ignore[arg-type]
    return {record.event.content for record in agent.reader.find(wanted)}


def notes(secret: bytes, number: int) -> list[Event]:
    return [signed(secret, content=f"{secret[:1].hex()} {n}") for n in range(number)]


def test_a_banned_key_is_refused_and_its_events_are_gone(agent: Agent) -> None:
    store(agent, *notes(ALICE, 3), *notes(BOB, 1))

    ban_key(agent, ALICE_KEY, "spam")

    assert contents(agent, authors=frozenset({ALICE_KEY})) == set()
    assert len(contents(agent, authors=frozenset({BOB_KEY}))) == 1
    with pytest.raises(Refused, match="blocked: author is banned here"):
        check_policies(agent, signed(ALICE, content="new"))
    check_policies(agent, signed(BOB, content="new"))


def test_a_rule_counts_in_another_process_within_a_second(agent: Agent, clock: Clock) -> None:
    other = replace(agent, _parts={})
    event = signed(ALICE, content="new")
    check_policies(other, event)  # the rules are read, and kept

    ban_key(agent, ALICE_KEY)
    clock.now += 1

    with pytest.raises(Refused):
        check_policies(other, event)


def test_rules_that_have_not_changed_are_not_read_again(
    agent: Agent, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    from farthing.store.rules import RuleBook

    read: list[int] = []
    whole = RuleBook.read
    monkeypatch.setattr(RuleBook, "read", lambda book: read.append(1) or whole(book))
    for _ in range(5):
        check_policies(agent, signed())
        clock.now += 1

    assert len(read) == 1


def test_an_unbanned_key_may_write_again(agent: Agent) -> None:
    ban_key(agent, ALICE_KEY)

    assert unban(agent, ALICE_KEY)
    assert not unban(agent, ALICE_KEY)

    check_policies(agent, signed(ALICE))


def test_the_owner_cannot_be_banned(agent: Agent) -> None:
    with pytest.raises(InvalidCall, match="owner"):
        ban_key(agent, agent.settings.pubkey)


def test_a_banned_event_goes_and_does_not_come_back(agent: Agent) -> None:
    (event,) = notes(ALICE, 1)
    store(agent, event)

    ban_event(agent, event.id)

    assert contents(agent) == set()
    assert agent.events.save(event) is Outcome.DELETED
    with pytest.raises(Refused, match="blocked: event is banned"):
        check_policies(agent, event)


def test_only_allowed_kinds_are_taken_once_there_are_any(agent: Agent) -> None:
    manage(agent, Call(Method.ALLOW_KIND, [1]))

    check_policies(agent, signed(ALICE, kind=1))
    with pytest.raises(Refused, match="kind 7 is not allowed"):
        check_policies(agent, signed(ALICE, kind=7))
    check_policies(agent, signed(OWNER, kind=7))  # the owner's rules are for others


def test_a_disallowed_kind_is_refused_although_it_was_the_only_allowed_one(agent: Agent) -> None:
    manage(agent, Call(Method.ALLOW_KIND, [1]))

    manage(agent, Call(Method.DISALLOW_KIND, [1]))

    with pytest.raises(Refused, match="kind 1 is not allowed"):
        check_policies(agent, signed(ALICE, kind=1))
    check_policies(agent, signed(ALICE, kind=7))  # an empty list allows all others
    manage(agent, Call(Method.ALLOW_KIND, [1]))
    assert manage(agent, Call(Method.LIST_ALLOWED_KINDS, [])) == []
    check_policies(agent, signed(ALICE, kind=1))


def test_a_kind_is_refused_by_name_and_taken_again(agent: Agent) -> None:
    manage(agent, Call(Method.DISALLOW_KIND, [7]))

    assert manage(agent, Call(Method.LIST_DISALLOWED_KINDS, [])) == [7]
    check_policies(agent, signed(ALICE, kind=1))
    with pytest.raises(Refused, match="kind 7 is not allowed"):
        check_policies(agent, signed(ALICE, kind=7))

    manage(agent, Call(Method.ALLOW_KIND, [7]))
    check_policies(agent, signed(ALICE, kind=1))  # no list of the only kinds began
    check_policies(agent, signed(ALICE, kind=7))
    assert manage(agent, Call(Method.LIST_ALLOWED_KINDS, [])) == []


def test_a_kind_that_was_refused_joins_the_list_of_allowed_ones(agent: Agent) -> None:
    for method, kind in (
        (Method.ALLOW_KIND, 30023), (Method.ALLOW_KIND, 1), (Method.DISALLOW_KIND, 7),
        (Method.ALLOW_KIND, 7), (Method.DISALLOW_KIND, 1),
    ):  # fmt: skip
        manage(agent, Call(method, [kind]))

    assert manage(agent, Call(Method.LIST_ALLOWED_KINDS, [])) == [7, 30023]
    assert manage(agent, Call(Method.LIST_DISALLOWED_KINDS, [])) == []


def named(agent: Agent, method: Method) -> set[str]:
    return {next(iter(each.values())) for each in manage(agent, Call(method, []))}


def test_a_key_is_either_banned_or_allowed(agent: Agent) -> None:
    def lists() -> tuple[set[str], set[str]]:
        return named(agent, Method.LIST_BANNED_PUBKEYS), named(agent, Method.LIST_ALLOWED_PUBKEYS)

    for method, banned, allowed in (
        (Method.ALLOW_PUBKEY, set(), {ALICE_KEY}),
        (Method.BAN_PUBKEY, {ALICE_KEY}, set()),
        (Method.ALLOW_PUBKEY, set(), {ALICE_KEY}),
        (Method.UNALLOW_PUBKEY, set(), set()),
        (Method.BAN_PUBKEY, {ALICE_KEY}, set()),
        (Method.UNBAN_PUBKEY, set(), set()),
    ):
        assert manage(agent, Call(method, [ALICE_KEY])) is True
        assert lists() == (banned, allowed)


def test_an_event_is_either_banned_or_allowed(agent: Agent) -> None:
    event_id = hex_id(1)

    def lists() -> tuple[set[str], set[str]]:
        return named(agent, Method.LIST_BANNED_EVENTS), named(agent, Method.LIST_ALLOWED_EVENTS)

    for method, banned, allowed in (
        (Method.ALLOW_EVENT, set(), {event_id}),
        (Method.BAN_EVENT, {event_id}, set()),
        (Method.ALLOW_EVENT, set(), {event_id}),
        (Method.UNALLOW_EVENT, set(), set()),
        (Method.BAN_EVENT, {event_id}, set()),
        (Method.UNBAN_EVENT, set(), set()),
    ):
        assert manage(agent, Call(method, [event_id])) is True
        assert lists() == (banned, allowed)


def test_addresses_are_blocked_and_let_in_again(agent: Agent) -> None:
    alone = replace(agent, alone=True)

    manage(alone, Call(Method.BLOCK_IP, ["2001:DB8::0001", "flood"]))

    listed = manage(alone, Call(Method.LIST_BLOCKED_IPS, []))
    assert listed == [{"ip": "2001:db8::1", "reason": "flood"}]
    assert is_blocked(alone, "2001:db8::1")
    manage(alone, Call(Method.UNBLOCK_IP, ["2001:db8::1"]))
    assert not is_blocked(alone, "2001:db8::1")
    with pytest.raises(InvalidCall, match="expected an IP address"):
        manage(alone, Call(Method.BLOCK_IP, ["300.1.1.1"]))


def test_the_relay_changes_what_it_says_of_itself(agent: Agent) -> None:
    manage(agent, Call(Method.CHANGE_RELAY_NAME, ["Groat"]))
    manage(agent, Call(Method.CHANGE_RELAY_DESCRIPTION, ["small change"]))
    manage(agent, Call(Method.CHANGE_RELAY_ICON, ["https://relay.example/i.png"]))

    now = settings_in_force(agent)

    said = now.name, now.description, now.icon
    assert said == ("Groat", "small change", "https://relay.example/i.png")


def test_an_empty_text_brings_the_settings_back(agent: Agent) -> None:
    manage(agent, Call(Method.CHANGE_RELAY_NAME, ["Groat"]))

    manage(agent, Call(Method.CHANGE_RELAY_NAME, [""]))

    assert settings_in_force(agent).name == agent.settings.name


def test_an_icon_is_a_url(agent: Agent) -> None:
    with pytest.raises(InvalidCall, match="URL"):
        manage(agent, Call(Method.CHANGE_RELAY_ICON, ["javascript:alert(1)"]))
    assert settings_in_force(agent).icon == agent.settings.icon


def test_removing_keeps_the_books_and_the_numbers(agent: Agent) -> None:
    store(agent, *notes(ALICE, 5))
    last = agent.changes.last_number()

    removed = list(remove_matching(agent, Filter(authors=frozenset({ALICE_KEY}), limit=3)))

    assert len(removed) == 3
    assert len(contents(agent)) == 2
    assert agent.changes.last_number() == last
    assert audit(agent).differences == []


def test_a_dry_run_removes_nothing(agent: Agent) -> None:
    store(agent, *notes(ALICE, 2))

    assert len(list(remove_matching(agent, Filter(), dry_run=True))) == 2

    assert len(contents(agent)) == 2


def vanish_request(relay: str, **changes: object) -> Event:
    return signed(ALICE, kind=62, content="", tags=[["relay", relay]], **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("relay", ["ALL_RELAYS", "wss://relay.example", "wss://relay.example/"])
def test_a_key_that_asks_to_vanish_is_gone(agent: Agent, relay: str) -> None:
    wrap = signed(BOB, kind=1059, content="for alice", tags=[["p", ALICE_KEY]])
    store(agent, *notes(ALICE, 3), *notes(BOB, 1), wrap)

    store(agent, request := vanish_request(relay))

    left = {record.id for record in agent.reader.find(Filter())}
    assert left == {notes(BOB, 1)[0].id, request.id}
    for event in (*notes(ALICE, 3), wrap):
        assert agent.events.save(event) is Outcome.DELETED  # nor does it come back


def test_older_events_of_a_vanished_key_do_not_come_from_elsewhere(
    agent: Agent, clock: Clock
) -> None:
    """Also those that were never stored here."""
    old = signed(ALICE, content="old", created_at=clock.now - 1000)
    new = signed(ALICE, content="new", created_at=clock.now + 1)
    wrap = signed(BOB, kind=1059, tags=[["p", ALICE_KEY]], created_at=clock.now)
    other = signed(BOB, kind=1059, tags=[["p", BOB_KEY], ["p", "?"]], created_at=clock.now)
    for event in (old, wrap):
        check_policies(agent, event)
    store(agent, vanish_request("wss://elsewhere.example", created_at=clock.now + 5))

    store(agent, request := vanish_request("ALL_RELAYS", created_at=clock.now))

    for event in (old, wrap):
        with pytest.raises(Refused, match=r"blocked: .* has asked to vanish"):
            check_policies(agent, event)
    for event in (new, other, request, signed(BOB)):
        check_policies(agent, event)


def test_requests_to_vanish_are_looked_up_only_if_there_are_any(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_policies(agent, signed())  # the rules are read
    monkeypatch.setattr(agent.reader, "find", lambda *_: pytest.fail("the store is read"))

    check_policies(agent, signed())


def test_a_request_to_vanish_is_taken_where_few_kinds_are(agent: Agent) -> None:
    manage(agent, Call(Method.ALLOW_KIND, [1]))

    check_policies(agent, vanish_request("ALL_RELAYS"))


def test_a_request_for_another_relay_changes_nothing(agent: Agent) -> None:
    store(agent, *notes(ALICE, 2))

    store(agent, vanish_request("wss://elsewhere.example"))

    assert len(contents(agent, kinds=frozenset({1}))) == 2


def test_what_was_written_after_the_request_stays(agent: Agent, clock: Clock) -> None:
    later = signed(ALICE, content="later", created_at=clock.now + 10)
    store(agent, *notes(ALICE, 1), later)

    store(agent, vanish_request("ALL_RELAYS", created_at=clock.now))

    assert contents(agent, kinds=frozenset({1})) == {"later"}


def test_a_long_removal_goes_on_in_the_sweeper(sqlite: SqliteEngine, clock: Clock) -> None:
    agent = make_agent(sqlite, clock, secret_key=OWNER.hex(), max_removed_at_once=2)
    store(agent, *notes(ALICE, 5))

    ban_key(agent, ALICE_KEY)
    assert len(contents(agent)) == 3

    removed = [sweep(agent)["removed"] for _ in range(4)]
    assert removed == [2, 1, 0, 0]
    assert contents(agent) == set()


def test_reports_fill_the_moderation_queue_until_someone_decides(agent: Agent) -> None:
    bad, fine = notes(ALICE, 2)
    report = signed(
        BOB,
        kind=1984,
        content="look",
        tags=[["e", bad.id, "spam"], ["e", fine.id], ["p", ALICE_KEY]],
    )
    store(agent, bad, fine, report)
    assert {each.event.id: each.reason for each in reported_events(agent)} == {
        bad.id: "spam",
        fine.id: "look",
    }

    manage(agent, Call(Method.ALLOW_EVENT, [fine.id]))
    manage(agent, Call(Method.BAN_EVENT, [bad.id, "it was spam"]))

    assert manage(agent, Call(Method.LIST_EVENTS_NEEDING_MODERATION, [])) == []
    banned = manage(agent, Call(Method.LIST_BANNED_EVENTS, []))
    assert banned == [{"id": bad.id, "reason": "it was spam"}]


def test_an_event_with_a_long_report_can_be_banned_for_it(agent: Agent) -> None:
    (bad,) = notes(ALICE, 1)
    store(agent, bad, signed(BOB, kind=1984, tags=[["e", bad.id, "spam " * 1000]]))
    (row,) = manage(agent, Call(Method.LIST_EVENTS_NEEDING_MODERATION, []))

    manage(agent, Call(Method.BAN_EVENT, [row["id"], row["reason"]]))

    assert row["reason"].startswith("spam spam")
    assert contents(agent, kinds=frozenset({1})) == set()


def test_every_method_is_listed_and_served(agent: Agent) -> None:
    alone = replace(agent, alone=True)

    assert set(supported_methods(alone)) == {method.value for method in Method}
    assert set(METHODS) == set(Method)
    assert "blockip" not in supported_methods(agent)
    with pytest.raises(InvalidCall, match="not supported here"):
        manage(agent, Call(Method.BLOCK_IP, ["1.2.3.4"]))


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        {"method": "nosuch"},
        {"method": ["banpubkey"]},
        {"method": "banpubkey", "params": "x"},
    ],
)
def test_a_call_that_makes_no_sense_is_refused(value: object) -> None:
    with pytest.raises(InvalidCall, match=r"expected|there is no method 'nosuch'"):
        parse_call(value)


@pytest.mark.parametrize(
    "call",
    [
        Call(Method.BAN_PUBKEY, []),
        Call(Method.BAN_PUBKEY, ["npub"]),
        Call(Method.BAN_PUBKEY, [hex_id(1), 5]),
        Call(Method.ALLOW_KIND, ["1"]),
        Call(Method.ALLOW_KIND, [65536]),
        Call(Method.CHANGE_RELAY_NAME, ["x" * 1001]),
    ],
)
def test_wrong_parameters_change_nothing(agent: Agent, call: Call) -> None:
    with pytest.raises(InvalidCall, match="expected"):
        manage(agent, call)
    assert manage(agent, Call(Method.LIST_BANNED_PUBKEYS, [])) == []
