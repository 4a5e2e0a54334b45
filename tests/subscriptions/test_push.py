"""Subscriptions by push: the proof of the address, order, draws by true fulfillments, failures."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from farthing.agent.audit import audit
from farthing.btp_nips.codec import decode
from farthing.btp_nips.identity import key_owner
from farthing.btp_nips.lifecycle import Ending
from farthing.btp_nips.messages import Auth, Closed, Delivery, Eose, EventMessage, Notice
from farthing.btp_nips.models import Model
from farthing.connector.subscriptions.ending import end
from farthing.connector.subscriptions.pushing import deliver
from farthing.connector.subscriptions.sweeping import sweep_subscriptions, wake_all
from farthing.context import Agent
from farthing.ilp.packet import Code, Prepare, Reject
from farthing.ilp.tokens import seal
from farthing.ports.outbound import OutboundTimeout
from farthing.store.paid_records import PaidSubscription
from farthing.store.sqlite import SqliteEngine
from infra.costs.counting import CountingEngine
from tests.ilp.paying import posted, send
from tests.relay.world import ALICE, OWNER, Clock
from tests.subscriptions.world import (
    NOTES,
    SUBSCRIBER,
    Answer,
    Subscriber,
    Wire,
    befriend,
    expect,
    ids,
    inbox,
    joined,
    note,
    publish,
    received,
    refusal,
    store_notes,
    wakes_of,
)


@dataclass
class Town:
    """A relay, and an agent that subscribes to it."""

    relay: Agent
    agent: Agent
    wire: Wire
    subscriber: Subscriber
    clock: Clock

    def subscribe(self, amount: int = 2000, **given: object) -> Answer:
        expect(self.agent, self.relay)
        options = {"model": Model.STREAMING, "reply_to": "g.bob", **given}
        answer = self.subscriber.subscribe(amount, **options)  # type: ignore[arg-type]
        self.serve()
        return answer

    def serve(self, *, also_later: bool = False) -> None:
        wakes_of(self.relay).serve(self.relay, also_later=also_later)

    @property
    def standing(self) -> PaidSubscription:
        owner = key_owner(self.subscriber.pubkey)
        found = self.relay.paid_subscriptions.get(owner, "s1", self.relay.now)
        assert found is not None
        return found

    @property
    def names(self) -> list[str]:
        return [type(each).__name__ for each in inbox(self.agent, self.relay)]

    def refuse(self, code: Code, times: int = 10**9) -> None:
        """Have the subscriber's packets rejected on their way, so many times."""
        left = iter(range(times))

        def before(_url: str, prepare: Prepare) -> Reject | None:
            if prepare.destination == "g.bob" and next(left, None) is not None:
                return Reject(code, "g.bob", "no", b"")
            return None

        self.wire.before = before


@pytest.fixture
def town(tmp_path: Path, clock: Clock) -> Iterator[Town]:
    engines = [SqliteEngine(tmp_path / name, clock=clock) for name in ("relay", "bob")]
    wire = Wire()
    relay = joined(engines[0], clock, wire, "relay", OWNER)
    bob = joined(engines[1], clock, wire, "bob", SUBSCRIBER)
    there, _ = befriend(relay, bob, wire)
    yield Town(relay, bob, wire, Subscriber(relay, SUBSCRIBER, there), clock)
    for engine in engines:
        engine.close()


def test_stored_events_eose_and_new_events_arrive_in_order(town: Town) -> None:
    stored = store_notes(town.relay, 3)

    town.subscribe()
    new = publish(town.relay, note(), note(kind=7), note())
    town.serve()

    assert town.names == ["EventMessage"] * 3 + ["Eose"] + ["EventMessage"] * 2
    assert received(town.agent, town.relay) == ids([*stored, new[0], new[2]])
    assert town.standing.account.credit == 1000 - 50
    assert town.standing.state == "active"
    assert audit(town.relay).differences == []
    assert audit(town.agent).differences == []
    eose = inbox(town.agent, town.relay)[3]
    assert isinstance(eose, Eose)
    assert (eose.event_count, eose.credit) == (3, 970)


def test_the_address_is_proven_before_money_moves_and_once_a_day(town: Town) -> None:
    town.subscribe()
    town.subscriber.subscribe(1160, "s2", reply_to="g.bob")

    proofs = [p for _, p in town.wire.seen if isinstance(decode(p.data), Auth)]
    assert [(each.amount, each.destination) for each in proofs] == [(0, "g.bob")]
    town.clock.now += 24 * 3600
    expect(town.agent, town.relay, "s3")
    town.subscriber.subscribe(1160, "s3", reply_to="g.bob")
    proofs = [p for _, p in town.wire.seen if isinstance(decode(p.data), Auth)]
    assert len(proofs) == 2


def test_a_victim_of_a_forged_reply_to_sees_one_packet_and_no_money_moves(town: Town) -> None:
    thief = Subscriber(town.relay, ALICE, town.subscriber.peer)

    for number in range(5):
        message = thief.req(f"s{number}", [NOTES], reply_to="g.bob")
        assert refusal(thief.send(message, 1160)) == ("F99", "address_unproven")

    assert len(town.wire.seen) == 1
    assert posted(town.relay, town.subscriber.peer) == 0
    assert list(town.relay.paid_subscriptions.all(town.relay.now)) == []


def test_no_answer_to_the_proof(town: Town) -> None:
    town.refuse(Code.T01_PEER_UNREACHABLE)
    message = town.subscriber.req(filters=[NOTES], reply_to="g.bob")

    assert refusal(town.subscriber.send(message, 1160)) == ("T01", "address_unproven")
    assert posted(town.relay, town.subscriber.peer) == 0


@pytest.mark.parametrize("address", ["g.relay", "g.relay.x", "peer.bob", "g.nowhere"])
def test_addresses_that_nothing_is_sent_to(town: Town, address: str) -> None:
    message = town.subscriber.req(filters=[NOTES], reply_to=address)

    assert refusal(town.subscriber.send(message, 1160)) == ("F99", "address_unproven")
    assert town.wire.seen == []


@pytest.mark.parametrize("given", ["g.relay.bob", ""])
def test_a_peer_with_an_address_below_the_relays_can_be_delivered_to(
    tmp_path: Path, clock: Clock, given: str
) -> None:
    """The operator has given the peer its address, or it has asked for one by ILDCP."""
    engines = [SqliteEngine(tmp_path / name, clock=clock) for name in ("relay", "bob")]
    wire = Wire()
    relay = joined(engines[0], clock, wire, "relay", OWNER)
    bob = joined(engines[1], clock, wire, "relay.bob", SUBSCRIBER)
    there, _ = befriend(relay, bob, wire)
    sealed = seal(OWNER, "bob", b"token-" * 8)
    there = replace(there, id="bob", ilp_address=given, outgoing_token=sealed)
    relay.ledger.remove_peer("relay.bob")
    relay.ledger.add_peer(there)
    town = Town(relay, bob, wire, Subscriber(relay, SUBSCRIBER, there), clock)
    events = store_notes(relay, 2)

    town.subscribe(reply_to="g.relay.bob")

    assert received(bob, relay) == ids(events)
    others = town.subscriber.req("s2", [NOTES], reply_to="g.relay.carol")
    assert refusal(town.subscriber.send(others, 1160)) == ("F99", "address_unproven")
    for engine in engines:
        engine.close()


def test_a_delivery_that_nobody_awaits_is_refused(town: Town) -> None:
    """The agent has noted nothing: it does not even prove its address."""
    message = town.subscriber.req(filters=[NOTES], reply_to="g.bob")

    assert refusal(town.subscriber.send(message, 1160)) == ("F99", "address_unproven")


def test_a_delivery_sent_back_to_the_relay_does_not_give_its_preimage(town: Town) -> None:
    store_notes(town.relay, 1)
    town.subscribe()
    packets = [prepare for _, prepare in town.wire.seen]

    for prepare in packets:
        reflected = replace(prepare, destination="g.relay")
        reply = send(town.relay, reflected, town.subscriber.peer)
        assert isinstance(reply, Reject)


def test_credit_that_is_gone_closes_with_a_notice(town: Town) -> None:
    store_notes(town.relay, 3)

    town.subscribe(1025)

    assert town.names == ["EventMessage"] * 2 + ["Notice", "Closed"]
    gone, closed = inbox(town.agent, town.relay)[2:]
    assert isinstance(gone, Notice)
    assert gone.message.startswith("[payment_insufficient] ")
    assert isinstance(closed, Closed)
    assert closed.reason == "Subscription credit is used up"
    assert town.relay.purses.get(town.subscriber.pubkey).left == 5
    assert town.standing.is_told
    assert audit(town.relay).differences == []


def test_credit_below_one_fee_closes_before_another_event_comes(town: Town) -> None:
    store_notes(town.relay, 1)

    town.subscribe(1020)
    assert town.names == ["EventMessage", "Eose", "Notice"]
    publish(town.relay, note())
    town.serve()

    assert town.names == ["EventMessage", "Eose", "EventMessage", "Notice", "Notice", "Closed"]
    texts = {each.message for each in inbox(town.agent, town.relay) if isinstance(each, Notice)}
    assert {text.partition(" ")[0] for text in texts} == {"[credit_low]", "[payment_insufficient]"}
    assert town.standing.is_told
    assert audit(town.relay).differences == []


def test_credit_is_refilled_from_the_purse_before_a_packet_leaves(town: Town) -> None:
    town.relay.purses.grant(town.subscriber.pubkey, 1500, town.relay.now_ms, "grant")
    store_notes(town.relay, 4)

    town.subscribe(1010)

    assert len(received(town.agent, town.relay)) == 4
    assert town.standing.account.credit == 10 + 1000 - 40
    assert town.relay.purses.get(town.subscriber.pubkey).left == 500
    assert audit(town.relay).differences == []


def test_what_is_not_fulfilled_is_not_drawn_for_and_comes_again(town: Town) -> None:
    town.subscribe()
    town.refuse(Code.T01_PEER_UNREACHABLE, times=1)
    events = publish(town.relay, note(), note())
    town.serve()

    assert received(town.agent, town.relay) == []
    assert town.standing.account.credit == 1000
    assert town.standing.trouble.failures == 1
    town.serve(also_later=True)
    assert received(town.agent, town.relay) == ids(events)
    assert town.standing.account.credit == 980
    assert town.standing.trouble.failures == 0


def test_a_lost_answer_is_drawn_for_once(town: Town) -> None:
    """The subscriber has fulfilled, and we never heard of it."""
    town.subscribe()
    lost = iter([True])

    def after(_url: str, prepare: Prepare) -> None:
        if prepare.destination == "g.bob" and next(lost, False):
            raise OutboundTimeout("lost")

    town.wire.after = after
    events = publish(town.relay, note())
    town.serve()
    assert town.standing.account.credit == 1000
    town.serve(also_later=True)

    assert received(town.agent, town.relay) == ids(events)
    assert town.standing.account.credit == 990
    packets = [p.data for _, p in town.wire.seen if p.destination == "g.bob"]
    assert packets[-1] == packets[-2]  # the same position gives the same bytes


def test_an_event_that_is_refused_five_times_is_skipped_unpaid(town: Town) -> None:
    town.subscribe()
    town.refuse(Code.F00_BAD_REQUEST, times=5)
    events = publish(town.relay, note(), note())
    town.serve(also_later=True)

    assert received(town.agent, town.relay) == [events[1].id]
    assert town.standing.account.credit == 990


def test_what_comes_behind_a_skipped_event_in_the_window_is_neither_lost_nor_free(
    town: Town,
) -> None:
    town.subscribe(window=5)
    events = publish(town.relay, *(note() for _ in range(5)))
    refused, tries = events[1].id, iter(range(10**6))

    def before(_url: str, prepare: Prepare) -> Reject | None:
        message = decode(prepare.data)
        if isinstance(message, EventMessage) and message.event.id == refused:
            return Reject(Code("F99"), "g.bob", "not this one", b"")
        if isinstance(message, EventMessage) and message.event.id == events[3].id:
            # It fails as often as the other one, for a reason that passes.
            return Reject(Code("T01"), "g.bob", "away", b"") if next(tries) < 5 else None
        return None

    town.wire.before = before
    town.serve(also_later=True)

    left = [event for event in events if event.id != refused]
    assert received(town.agent, town.relay) == ids(left)
    assert (town.standing.account.credit, town.standing.account.delivered) == (960, 4)
    assert audit(town.relay).differences == []


def test_no_packet_leaves_before_the_next_attempt_is_due(town: Town) -> None:
    """New events, and sweeps that find older dates, wake the subscription as well."""
    town.subscribe()
    town.refuse(Code.T01_PEER_UNREACHABLE)
    publish(town.relay, note())
    town.serve()
    sent = len(town.wire.seen)

    wakes_of(town.relay).waiting.clear()
    for _ in range(3):
        publish(town.relay, note())
        assert wakes_of(town.relay).waiting == {}
        town.relay.paid_subscriptions.wake_at(town.standing, town.relay.now_ms)
        sweep_subscriptions(town.relay)
        town.serve()

    assert len(town.wire.seen) == sent
    town.clock.now = town.standing.trouble.retry_ms / 1000 + 0.001
    sweep_subscriptions(town.relay)
    town.serve()
    assert len(town.wire.seen) == sent + 1


def test_an_owner_that_sends_a_request_is_served_at_once(town: Town) -> None:
    town.subscribe()
    town.refuse(Code.T01_PEER_UNREACHABLE, times=1)
    (event,) = publish(town.relay, note())
    town.serve()
    assert received(town.agent, town.relay) == []

    town.subscriber.top_up(10, delivery=Delivery.PUSH, reply_to="g.bob")
    town.serve()

    assert received(town.agent, town.relay) == [event.id]


def test_closed_has_attempts_of_its_own(town: Town) -> None:
    """Those of the event before it do not count."""
    town.subscribe()
    left = iter(range(4))

    def before(_url: str, prepare: Prepare) -> Reject | None:
        message = decode(prepare.data)
        if isinstance(message, EventMessage):
            return Reject(Code("F06"), "g.bob", "not wanted", b"")
        if isinstance(message, Closed) and next(left, None) is not None:
            return Reject(Code("T01"), "g.bob", "away", b"")
        return None

    town.wire.before = before
    publish(town.relay, note())
    town.serve(also_later=True)

    assert town.names == ["Eose", "Closed"]


@pytest.mark.parametrize("code", ["F02", "F06", "F07"])
def test_three_refusals_in_a_row_close(town: Town, code: str) -> None:
    town.subscribe()
    town.refuse(Code(code), times=3)
    publish(town.relay, note())
    town.serve(also_later=True)

    assert town.standing.ending == "Subscriber is unreachable"
    assert town.names == ["Eose", "Closed"]
    assert town.relay.purses.get(town.subscriber.pubkey).left == 1000
    assert audit(town.relay).differences == []


def test_an_hour_without_a_fulfillment_closes(town: Town) -> None:
    town.subscribe(ttl=86400)
    town.refuse(Code.T01_PEER_UNREACHABLE)
    publish(town.relay, note())
    town.serve()
    town.clock.now += 3600
    town.serve(also_later=True)

    assert town.standing.ending == "Subscriber is unreachable"


def test_an_owner_that_changes_the_filters_is_not_unreachable(town: Town) -> None:
    """The REQ comes between the last failure and the end that follows from it."""
    town.subscribe()
    town.refuse(Code.T01_PEER_UNREACHABLE, times=1)
    publish(town.relay, note())
    town.serve()
    failed = town.standing
    town.subscriber.subscribe(2000, filters=[{"kinds": [7]}], model=Model.STREAMING)

    assert end(town.relay, failed, Ending.UNREACHABLE) is None
    assert not town.standing.state.has_ended


def test_the_end_of_its_time_is_told(town: Town) -> None:
    town.subscribe(ttl=60)
    publish(town.relay, note())
    town.clock.now += 60
    town.serve()
    sweep_subscriptions(town.relay)
    town.serve()

    assert town.names == ["Eose", "Closed"]
    closed = inbox(town.agent, town.relay)[-1]
    assert isinstance(closed, Closed)
    assert closed.reason == "Subscription TTL expired"
    assert town.standing.state == "expired"
    assert town.relay.purses.get(town.subscriber.pubkey).left == 1000


def test_no_event_leaves_once_the_time_is_over(town: Town) -> None:
    """The time ends in the middle of a delivery, behind its second event."""
    town.subscribe(ttl=60)
    town.clock.now += 59
    left = iter([False, True])

    def after(_url: str, prepare: Prepare) -> None:
        if isinstance(decode(prepare.data), EventMessage) and next(left, False):
            town.clock.now += 1

    town.wire.after = after
    events = publish(town.relay, *(note() for _ in range(4)))
    town.serve()

    assert received(town.agent, town.relay) == ids(events[:2])
    assert town.names[-1] == "Closed"
    assert town.standing.state == "expired"
    assert town.relay.purses.get(town.subscriber.pubkey).left == 1000 - 20


def test_a_top_up_of_time_during_a_delivery_keeps_it_going(town: Town) -> None:
    town.subscribe(ttl=60)
    town.clock.now += 59
    left = iter([True])

    def after(_url: str, prepare: Prepare) -> None:
        if isinstance(decode(prepare.data), EventMessage) and next(left, False):
            town.subscriber.top_up(0, ttl=60)
            town.clock.now += 1

    town.wire.after = after
    events = publish(town.relay, *(note() for _ in range(4)))
    town.serve()

    assert received(town.agent, town.relay) == ids(events)
    assert town.standing.state == "active"


def test_after_close_nothing_is_delivered(town: Town) -> None:
    town.subscribe()
    assert town.subscriber.close()["credit"] == "1000"
    publish(town.relay, note())
    town.serve()

    assert town.names == ["Eose"]
    assert wakes_of(town.relay).waiting == {}


def test_a_lease_that_was_taken_over_draws_nothing_twice(town: Town) -> None:
    """The first holder sends a packet and is overtaken before it commits."""
    town.subscribe()
    (event,) = publish(town.relay, note())
    overtaken = iter([True])

    def after(_url: str, prepare: Prepare) -> None:
        if prepare.destination == "g.bob" and next(overtaken, False):
            town.clock.now += 61
            deliver(town.relay, key_owner(town.subscriber.pubkey), "s1")

    town.wire.after = after
    town.serve()

    assert received(town.agent, town.relay) == [event.id]
    assert town.standing.account.credit == 990
    assert audit(town.relay).differences == []


def test_a_closed_subscription_is_not_drawn_for_late(town: Town) -> None:
    town.subscribe()
    publish(town.relay, note())
    closing = iter([True])

    def after(_url: str, prepare: Prepare) -> None:
        if prepare.destination == "g.bob" and next(closing, False):
            assert town.subscriber.close()["credit"] == "1000"

    town.wire.after = after
    town.serve()

    assert town.relay.purses.get(town.subscriber.pubkey).left == 1000
    assert audit(town.relay).differences == []


def test_a_top_up_during_a_delivery_keeps_the_subscription_open(town: Town) -> None:
    """The subscriber pays more as soon as the NOTICE comes, and further events wait already."""
    town.subscribe(1110)
    events = publish(town.relay, *(note() for _ in range(15)))

    def after(_url: str, prepare: Prepare) -> None:
        if prepare.destination == "g.bob" and isinstance(decode(prepare.data), Notice):
            town.wire.after = lambda *_: None
            town.subscriber.top_up(200)

    town.wire.after = after
    town.serve()

    assert received(town.agent, town.relay) == ids(events)
    assert "Closed" not in town.names
    assert town.standing.account.credit == 110 + 200 - 150
    assert audit(town.relay).differences == []


def test_little_credit_is_told_again_after_a_top_up_at_the_notice(town: Town) -> None:
    town.subscribe(1110)

    def after(_url: str, prepare: Prepare) -> None:
        if prepare.destination == "g.bob" and isinstance(decode(prepare.data), Notice):
            town.wire.after = lambda *_: None
            town.subscriber.top_up(100)

    town.wire.after = after
    for _ in range(2):
        publish(town.relay, note(), note())
        town.serve()
    assert town.names.count("Notice") == 1
    assert town.standing.account.credit == 170
    town.clock.now += 1
    publish(town.relay, *(note() for _ in range(8)))
    town.serve()

    assert town.names.count("Notice") == 2


def test_a_top_up_during_a_delivery_disturbs_nothing(town: Town) -> None:
    town.subscribe()
    publish(town.relay, note())
    paying = iter([True])

    def after(_url: str, prepare: Prepare) -> None:
        if prepare.destination == "g.bob" and next(paying, False):
            town.subscriber.top_up(500)

    town.wire.after = after
    town.serve()

    assert town.standing.account.credit == 1490
    assert len([p for _, p in town.wire.seen if p.destination == "g.bob"]) == 3


def test_after_a_crash_everybody_is_woken(town: Town) -> None:
    town.subscribe()
    events = publish(town.relay, note())
    wakes_of(town.relay).waiting.clear()

    assert wake_all(town.relay) == 1
    town.serve()
    assert received(town.agent, town.relay) == ids(events)


def test_a_lease_left_by_a_crash_is_over_by_itself(town: Town) -> None:
    town.subscribe()
    owner = key_owner(town.subscriber.pubkey)
    now = town.relay.now_ms
    assert town.relay.paid_subscriptions.take_lease(owner, "s1", "dead", now, now + 60_000)
    events = publish(town.relay, note())
    town.serve()
    assert received(town.agent, town.relay) == []

    town.clock.now += 121
    sweep_subscriptions(town.relay)
    town.serve()
    assert received(town.agent, town.relay) == ids(events)


def test_packets_in_the_window_are_charged_in_order(town: Town) -> None:
    town.subscribe(window=10)
    events = publish(town.relay, *(note() for _ in range(25)))
    town.serve()

    assert received(town.agent, town.relay) == ids(events)
    assert town.standing.account.credit == 750


@pytest.mark.parametrize("window", [2, 3, 10])
def test_the_window_is_what_is_under_way_at_once(town: Town, window: int) -> None:
    """Packets overtake each other. They are kept and charged in order all the same."""
    town.wire.order = lambda number: reversed(range(number))
    stored = store_notes(town.relay, 12)
    town.subscribe(window=window)
    events = publish(town.relay, *(note() for _ in range(12)))
    town.serve()

    assert max(town.wire.together) == window
    assert town.wire.together[0] == window
    assert received(town.agent, town.relay) == ids([*stored, *events])
    assert town.standing.account.credit == 1000 - 240
    assert audit(town.relay).differences == []


@pytest.mark.parametrize("window", [None, 1, 10])
def test_eose_leaves_alone_behind_what_is_stored_and_before_what_is_new(
    town: Town, window: int | None
) -> None:
    town.wire.order = lambda number: reversed(range(number))
    store_notes(town.relay, 3)

    def before(_url: str, prepare: Prepare) -> None:
        if isinstance(decode(prepare.data), Eose):
            publish(town.relay, note())

    town.wire.before = before
    town.subscribe(window=window)
    town.serve()

    sent = [type(decode(prepare.data)).__name__ for _, prepare in town.wire.seen]
    assert sent == ["Auth", *["EventMessage"] * 3, "Eose", "EventMessage"]


@pytest.mark.parametrize("lost", range(5))
@pytest.mark.parametrize("code", ["T01", "F00"])
def test_what_comes_behind_a_failure_in_the_window_comes_again(
    town: Town, lost: int, code: str
) -> None:
    """What lies behind the failure was delivered, and nobody has paid for it yet."""
    town.subscribe(window=5)
    events = publish(town.relay, *(note() for _ in range(5)))
    number = iter(range(10**6))

    def before(_url: str, prepare: Prepare) -> Reject | None:
        fails = prepare.destination == "g.bob" and next(number) == lost
        return Reject(Code(code), "g.bob", "no", b"") if fails else None

    town.wire.before = before
    town.serve()
    assert town.standing.account.credit == 1000 - 10 * lost
    assert town.standing.account.delivered == lost
    town.serve(also_later=True)

    assert received(town.agent, town.relay) == ids(events)
    assert (town.standing.account.credit, town.standing.account.delivered) == (950, 5)
    sent = [p for _, p in town.wire.seen if p.destination == "g.bob"][-(10 - lost) :]
    assert len({p.data for p in sent}) == 5  # the same bytes for the same position
    assert audit(town.relay).differences == []


def test_a_window_is_of_the_relays_setting_at_most(town: Town) -> None:
    settings = replace(town.relay.settings, subscription_window=4)
    narrow = replace(town.relay, settings=settings)
    subscriber = Subscriber(narrow, SUBSCRIBER, town.subscriber.peer)
    expect(town.agent, town.relay)
    store_notes(town.relay, 9)
    subscriber.subscribe(2000, model=Model.STREAMING, reply_to="g.bob", window=10)
    wakes_of(narrow).serve(narrow)

    assert max(town.wire.together) == 4


def test_deliveries_take_few_write_units(town: Town) -> None:
    town.subscribe()
    counting = CountingEngine(town.relay.engine)
    counted = replace(town.relay, engine=counting)

    publish(town.relay, note())
    wakes_of(counted).serve(counted)
    one = counting.reset().write_units
    publish(town.relay, *(note() for _ in range(41)))
    wakes_of(counted).serve(counted)
    many = counting.reset().write_units

    assert one <= 3
    assert (many - one) / 40 <= 0.3


def test_a_hop_keeps_no_receipt_of_a_delivery(town: Town) -> None:
    town.subscribe()
    publish(town.relay, note())
    town.serve()

    assert [*town.agent.ledger.receipts("relay")] == []
