"""A subscription against a plain list, by any mix of what can happen to it: whoever goes on to the
end has received all that matched, in order, and no position was charged twice."""

import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from farthing.agent.audit import audit
from farthing.btp_nips.codec import decode
from farthing.btp_nips.identity import key_owner
from farthing.btp_nips.messages import EventMessage
from farthing.btp_nips.models import Model
from farthing.btp_nips.positions import START
from farthing.connector.subscriptions.sweeping import sweep_subscriptions
from farthing.ilp.packet import Code, Fulfill, Prepare, Reject
from farthing.nostr.events import Event
from farthing.store.paid_records import PaidSubscription
from farthing.store.sqlite import SqliteEngine
from tests.ilp.paying import send
from tests.relay.world import BOB, OWNER, Clock, signed
from tests.store.faulty import Crash, Fault, FaultyEngine, at, never
from tests.subscriptions.world import (
    SUBSCRIBER,
    Answer,
    Subscriber,
    Wire,
    befriend,
    expect,
    joined,
    note,
    publish,
    refusal,
    wakes_of,
)

FEE = 10


class SubscriptionModel(RuleBasedStateMachine):
    """The relay stores what it is told to; the list has every event that the subscriber is owed."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.clock = Clock()
        folder = Path(self._folder.name)
        self.engines = [SqliteEngine(folder / name, clock=self.clock) for name in ("r", "b")]
        self.faulty = FaultyEngine(self.engines[0])
        self.wire = Wire()
        self.relay = joined(self.faulty, self.clock, self.wire, "relay", OWNER)
        self.bob = joined(self.engines[1], self.clock, self.wire, "bob", SUBSCRIBER)
        there, _ = befriend(self.relay, self.bob, self.wire)
        self.subscriber = Subscriber(self.relay, SUBSCRIBER, there)
        self.events: list[Event] = []  # in the order of their positions
        self.deleted: set[str] = set()
        self.received: list[str] = []
        self.positions: dict[str, str] = {}
        self.paid = 0
        self.is_open = False
        self.wire.after = self._note

    def teardown(self) -> None:
        for engine in self.engines:
            engine.close()
        self._folder.cleanup()

    def _note(self, _url: str, prepare: Prepare) -> None:
        """What has reached the subscriber by push."""
        if prepare.destination == "g.bob":
            self._take(decode(prepare.data))

    def _take(self, message: object) -> None:
        if isinstance(message, EventMessage):
            position = str(message.metadata.position)
            assert self.positions.setdefault(position, message.event.id) == message.event.id
            if message.event.id not in self.received:
                self.received.append(message.event.id)

    @property
    def standing(self) -> PaidSubscription:
        owner = key_owner(self.subscriber.pubkey)
        found = self.relay.paid_subscriptions.get(owner, "s1", self.relay.now)
        assert found is not None
        return found

    @initialize(stored=st.integers(0, 4), push=st.booleans(), amount=st.integers(1010, 1100))
    def subscribe(self, stored: int, push: bool, amount: int) -> None:
        self.events += publish(self.relay, *(note() for _ in range(stored)))
        expect(self.bob, self.relay)
        self.push = push
        self.subscriber.subscribe(
            amount, model=Model.STREAMING, ttl=86400, **({"reply_to": "g.bob"} if push else {})
        )
        self.paid, self.is_open = amount, True

    @rule(number=st.integers(1, 3), matching=st.booleans())
    def new_events(self, number: int, matching: bool) -> None:
        made = publish(self.relay, *(note(kind=1 if matching else 7) for _ in range(number)))
        self.events += made if matching else []

    @precondition(lambda self: any(each.id not in self.received for each in self.events))
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        """Of those that have not been delivered yet."""
        left = [each for each in self.events if each.id not in self.received]
        gone = data.draw(st.sampled_from(left))
        self.deleted.add(gone.id)
        publish(self.relay, signed(BOB, kind=5, tags=[["e", gone.id]], content=gone.id))

    @precondition(lambda self: self.is_open)
    @rule(amount=st.integers(10, 60))
    def top_up(self, amount: int) -> None:
        self._tick()
        if isinstance(self.subscriber.send(self.subscriber.req(), amount), Fulfill):
            self.paid += amount
        self._look()

    @precondition(lambda self: self.is_open and not self.push)
    @rule(most=st.integers(1, 4), again=st.booleans())
    def pull(self, most: int, again: bool) -> None:
        """`again` begins at the first event, which is delivered once more for nothing."""
        self._tick()
        answer = self.subscriber.pull(most, after=START if again else None)
        for message in answer.messages:
            self._take(message)
        self._look()

    @precondition(lambda self: self.is_open and not self.push)
    @rule(most=st.integers(1, 4), number=st.integers(0, 12), after=st.booleans())
    def crash_in_a_pull(self, most: int, number: int, after: bool) -> None:
        self._tick()
        prepare = self.subscriber.packet(self.subscriber.req(pull=most))
        self._with_crash(number, after, lambda: self._send(prepare))
        self._send(prepare)  # the client has had no answer
        self._look()

    def _send(self, prepare: Prepare) -> None:
        reply = send(self.relay, prepare, self.subscriber.peer)
        if isinstance(reply, Fulfill):
            for message in Answer(orjson.loads(reply.data), reply).messages:
                self._take(message)

    @precondition(lambda self: self.push)
    @rule(refused=st.integers(0, 2), code=st.sampled_from(["T01", "F00", "R00"]))
    def push_events(self, refused: int, code: str) -> None:
        left = iter(range(refused))

        def before(_url: str, prepare: Prepare) -> Reject | None:
            if prepare.destination == "g.bob" and next(left, None) is not None:
                return Reject(Code(code), "g.bob", "no", b"")
            return None

        self.wire.before = before
        wakes_of(self.relay).serve(self.relay)
        self.wire.before = lambda *_: None
        self._look()

    @precondition(lambda self: self.push)
    @rule(number=st.integers(0, 14), after=st.booleans())
    def crash_in_a_push(self, number: int, after: bool) -> None:
        self._with_crash(number, after, lambda: wakes_of(self.relay).serve(self.relay))
        self.clock.now += 61  # the lease of the dead is over
        sweep_subscriptions(self.relay)
        self._look()

    def _with_crash(self, number: int, after: bool, work: Callable[[], object]) -> None:
        self.faulty.operations.clear()
        self.faulty.plan = at(number, Fault(Crash, after=after))
        with suppress(Crash):
            work()
        self.faulty.plan = never

    def _tick(self) -> None:
        self.clock.now += 1

    def _look(self) -> None:
        self.is_open = not self.standing.state.has_ended

    @precondition(lambda self: self.is_open)
    @rule()
    def go_on_to_the_end(self) -> None:
        """With enough credit, all that is left comes."""
        self._tick()
        amount = FEE * (len(self.events) + 1)
        assert isinstance(self.subscriber.send(self.subscriber.req(), amount), Fulfill)
        self.paid += amount
        if self.push:
            self.clock.now += 61
            sweep_subscriptions(self.relay)
            wakes_of(self.relay).serve(self.relay, also_later=True)
        for _ in range(0 if self.push else len(self.events) + 2):
            self._tick()
            for message in self.subscriber.pull(1).messages:
                self._take(message)
        self._look()
        if self.is_open:
            left = [each.id for each in self.events if each.id not in self.deleted]
            assert [each for each in self.received if each not in self.deleted] == left

    @precondition(lambda self: self.is_open)
    @rule()
    def close(self) -> None:
        self._tick()
        left = self.standing.account.credit
        assert self.subscriber.close()["credit"] == str(left)
        self._look()
        resumed = self.subscriber.send(self.subscriber.req(pull=1))
        assert refusal(resumed) == ("F99", "subscription_not_found")
        self.is_open = False

    @invariant()
    def everything_came_in_order(self) -> None:
        """What was received is what was owed, without a gap but for what was deleted."""
        order = [each.id for each in self.events]
        places = [order.index(each) for each in self.received]
        assert places == sorted(places)
        if places:
            skipped = {each for each in order[: places[-1]] if each not in self.received}
            assert skipped <= self.deleted

    @invariant()
    def each_position_is_charged_at_most_once(self) -> None:
        for each in self.relay.paid_subscriptions.all(self.relay.now):
            assert each.account.spent == FEE * each.account.delivered
            assert each.account.delivered <= len(self.received)
            assert each.account.spent <= self.paid - 1000
            assert each.account.credit >= 0

    @invariant()
    def the_books_add_up(self) -> None:
        assert audit(replace(self.relay, engine=self.engines[0])).differences == []


def test_subscriptions_agree_with_a_plain_list() -> None:
    _run(12, 14)


@pytest.mark.soak
@pytest.mark.timeout(1800)  # a time-out in the middle looks like a flaky strategy
def test_against_a_plain_list_for_longer() -> None:
    _run(150, 25)


def _run(examples: int, steps: int) -> None:
    of_size = settings(
        max_examples=examples,
        stateful_step_count=steps,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(SubscriptionModel, settings=of_size)
