"""Broadcasting among agents in one process: what is paid, retried, told, and done once only."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from farthing.agent.audit import audit
from farthing.agent.broadcast import (
    NotBroadcast,
    broadcast,
    broadcast_new,
    deliver_due,
    rebroadcast,
)
from farthing.agent.targets import has_place, targets_of
from farthing.connector.origin import ACCOUNT, PACKET_SECONDS
from farthing.connector.quotes import quote
from farthing.context import Agent
from farthing.ilp.packet import Code, Prepare, Reject
from farthing.ilp.toon import dumps_event
from farthing.nostr.events import Event
from farthing.nostr.filters import parse_filter
from farthing.ports.outbound import OutboundTimeout, Response
from farthing.ports.relays import Published, RelayFailed
from farthing.relay.information import relay_information
from farthing.relay.sequence import number_events
from farthing.store.changes import Arrival
from farthing.store.outbox import Delivery, DeliveryState, Outbox
from farthing.store.payment import BORROWED, OWNER, Payment
from tests.ilp.test_forwarding import FEE, Town, Wire
from tests.relay.world import ALICE, START, signed

DAY = 24 * 3600
LEASE = PACKET_SECONDS + 6


class Relays:
    """Other relays by their names: agents of the town, and ordinary ones."""

    def __init__(self, town: "BroadcastTown") -> None:
        self.town = town
        self.ordinary: dict[str, Published] = {}
        self.published: list[tuple[str, str]] = []

    def _agent(self, url: str) -> Agent:
        name = url.removeprefix("ws://")
        if name in self.town.wire.cut or name not in self.town.wire.agents:
            raise RelayFailed("nobody is there")
        return self.town.wire.agents[name]

    def information(self, url: str, _seconds: float) -> Mapping[str, Any]:
        return relay_information(self._agent(url).settings)

    def read(self, url: str, filters: Sequence[Any], _limits: object) -> Iterator[Any]:
        found = self._agent(url).reader.find(parse_filter(dict(filters[0])))
        return iter([orjson.loads(each.json) for each in found])

    @contextmanager
    def session(self, url: str, *_: object) -> Iterator[Any]:
        if url not in self.ordinary:
            raise RelayFailed("nobody is there")
        here = self

        class Session:
            def publish(self, event: Mapping[str, Any]) -> Published:
                here.published.append((url, event["id"]))
                return here.ordinary[url]

        yield Session()


class QuotingWire(Wire):
    """Answers requests for quotes as well; and may lose answers to packets that arrived."""

    lose_answers = 0

    def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> Response:
        if url.endswith("/v1/quotes"):
            name = url.removeprefix("http://").removesuffix("/v1/quotes")
            return Response(200, orjson.dumps(quote(self.agents[name], orjson.loads(body))))
        response = super().post(url, headers, body, timeout)
        if self.lose_answers:
            self.lose_answers -= 1
            raise OutboundTimeout("no answer")
        return response


class BroadcastTown(Town):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.wire: QuotingWire = QuotingWire()  # type: ignore[assignment]
        self.relays = Relays(self)
        self.hubs("bob")

    def hubs(self, *names: str, **settings: Any) -> None:
        """Alice broadcasts to these."""
        self.agent("alice")
        shares = {"hubs": 100}
        self.change("alice", broadcast_hubs=tuple(f"ws://{name}" for name in names),
                    broadcast_shares=shares, **settings)  # fmt: skip

    def change(self, name: str, **settings: Any) -> None:
        agent = self.agent(name)
        self.wire.agents[name] = replace(
            agent, settings=replace(agent.settings, **settings), relays=self.relays, _parts={}
        )

    @property
    def alice(self) -> Agent:
        return self.agent("alice")

    def note(self, text: str = "to the hubs", **changes: Any) -> Event:
        secret = bytes.fromhex(self.alice.settings.secret_key)
        event = signed(secret, content=text, created_at=int(self.clock()), **changes)
        self.alice.events.save(event)
        return event

    def place(self, event: Event) -> list[Delivery]:
        self.place_only(event)
        return self.deliver(event)

    def place_only(self, event: Event) -> None:
        """Write down where it goes, and attempt nothing."""
        broadcast(self.alice, event)

    def deliver(self, event: Event, after: float = 0) -> list[Delivery]:
        self.clock.now += after
        deliver_due(self.alice)
        found = self.alice.outbox.broadcast(event.id)
        assert found is not None
        return sorted(found.deliveries, key=lambda each: each.relay)

    def check_books(self, *names: str) -> None:
        spent = self.alice.ledger.balance(ACCOUNT).posted
        due = {name: self.alice.ledger.balance(name).payable for name in names}
        owed = {name: self.agent(name).ledger.balance("alice").posted for name in names}
        assert due == owed
        assert sum(due.values()) == spent == self.alice.outbox.spent_on(int(self.clock()) // DAY)
        for agent in self.wire.agents.values():
            assert audit(agent).differences == []


@pytest.fixture
def town(tmp_path: Path) -> Iterator[BroadcastTown]:
    town = BroadcastTown(tmp_path)
    town.follow("alice", "bob", "carol")
    town.route("alice", bob="bob", carol="carol")
    yield town
    for engine in town.engines:
        engine.close()


def price_of(event: Event) -> int:
    return 10 * len(dumps_event(event))


def test_each_relay_is_paid_its_price_once(town: BroadcastTown) -> None:
    town.hubs("bob", "carol")
    note = town.note()
    for _ in range(2):  # to broadcast it again changes nothing
        deliveries = town.place(note)
    assert [each.state for each in deliveries] == [DeliveryState.STORED, DeliveryState.STORED]
    assert [each.amount for each in deliveries] == [price_of(note)] * 2
    assert all(town.agent(name).events.get(note.id) for name in ("bob", "carol"))
    town.check_books("bob", "carol")


def test_an_event_without_relays_is_no_broadcast(town: BroadcastTown) -> None:
    town.hubs()
    assert broadcast(town.alice, town.note()) == 0
    assert list(town.alice.outbox.broadcasts(10)) == []


def test_attempts_are_never_more_than_a_day_apart(town: BroadcastTown) -> None:
    town.hubs("bob", broadcast_retry_seconds=DAY // 2, broadcast_attempts=20)
    town.wire.cut.add("bob")
    note = town.note()
    (delivery,) = town.place(note)
    waits = []
    for _ in range(4):
        waits.append(delivery.due - int(town.clock()))
        (delivery,) = town.deliver(note, after=waits[-1])
    assert waits == [DAY // 2, DAY, DAY, DAY]


def test_a_relay_that_is_down_is_tried_again_later_each_time(town: BroadcastTown) -> None:
    town.wire.cut.add("bob")
    note = town.note()
    # Its document is not to be had either, so nothing says that it is paid.
    (first,) = town.place(note)
    assert (first.state, first.attempts) == (DeliveryState.DUE, 1)
    (second,) = town.deliver(note, after=29)
    assert second == first
    (second,) = town.deliver(note, after=1)
    assert (second.attempts, second.due - int(town.clock())) == (2, 60)
    town.wire.cut.clear()
    (third,) = town.deliver(note, after=60)
    assert (third.state, third.amount) == (DeliveryState.STORED, price_of(note))
    town.check_books("bob")


def test_what_never_answers_is_given_up_and_costs_nothing(town: BroadcastTown) -> None:
    town.hubs("bob", broadcast_attempts=2)
    town.wire.late.add("bob")
    note = town.note()
    town.place(note)
    (given_up,) = town.deliver(note, after=LEASE + 30)
    assert (given_up.state, given_up.amount) == (DeliveryState.FAILED, 0)
    assert given_up.why.startswith("R00")
    town.check_books("bob")


def test_a_raised_price_is_paid_once_it_is_told(town: BroadcastTown) -> None:
    note = town.note()
    broadcast(town.alice, note)
    town.relays.information = lambda *_: {  # type: ignore[method-assign]
        **relay_information(town.agent("bob").settings),
        "fees": {"publication_per_byte": {"amount": 1}},
    }
    (delivery,) = town.deliver(note)
    assert (delivery.state, delivery.amount, delivery.repriced) == (
        DeliveryState.STORED, price_of(note), True,
    )  # fmt: skip
    town.check_books("bob")


def test_a_relay_that_raises_its_price_twice_is_not_paid(
    town: BroadcastTown, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []

    def ask_for_more(_agent: Agent, prepare: Prepare) -> Reject:
        sent.append(prepare.amount)
        told = orjson.dumps({"price": 2 * prepare.amount, "received": prepare.amount})
        return Reject(Code.F04_INSUFFICIENT_DESTINATION_AMOUNT, "g.agent.bob", "more", told)

    monkeypatch.setattr("farthing.agent.broadcast.send_own", ask_for_more)
    note = town.note()
    (delivery,) = town.place(note)
    assert sent == [price_of(note), 2 * price_of(note)]
    assert (delivery.state, delivery.amount) == (DeliveryState.FAILED, 0)
    town.check_books("bob")


def test_fees_on_the_way_are_learnt_from_rejects(town: BroadcastTown) -> None:
    town.follow("bob", "eve")
    town.route("alice", bob="bob", eve="bob")
    town.route("bob", eve="eve")
    town.hubs("eve")
    note = town.note()
    (delivery,) = town.place(note)
    assert (delivery.state, delivery.amount) == (DeliveryState.STORED, price_of(note) + FEE)
    assert town.alice.ledger.balance("bob").payable == price_of(note) + FEE


def test_a_fee_that_eats_the_whole_amount_is_outbid(town: BroadcastTown) -> None:
    """R01 does not say how much more it takes."""
    town.follow("bob", "eve")
    town.route("alice", bob="bob", eve="bob")
    town.route("bob", eve="eve")
    town.change("eve", price_kinds={"1": 7})
    town.hubs("eve")
    (delivery,) = town.place(town.note())
    assert delivery.state is DeliveryState.STORED
    assert FEE + 7 <= delivery.amount <= 2 * (FEE + 7)


def test_an_event_that_is_there_already_is_done_and_free(town: BroadcastTown) -> None:
    note = town.note()
    town.agent("bob").events.save(note, payment=OWNER)
    (delivery,) = town.place(note)
    assert (delivery.state, delivery.amount) == (DeliveryState.STORED, 0)
    assert delivery.why.startswith("F99")
    town.check_books("bob")


def test_another_relays_word_for_a_duplicate_counts_as_well(
    town: BroadcastTown, monkeypatch: pytest.MonkeyPatch
) -> None:
    reject = Reject(Code.F99_APPLICATION_ERROR, "g.agent.bob", "duplicate: already have it")
    monkeypatch.setattr("farthing.agent.broadcast.send_own", lambda *_: reject)
    (delivery,) = town.place(town.note())
    assert (delivery.state, delivery.amount) == (DeliveryState.STORED, 0)


def test_what_the_receiver_has_borrowed_is_paid_for_all_the_same(town: BroadcastTown) -> None:
    note = town.note()
    town.agent("bob").events.save(note, payment=Payment((), BORROWED, START + DAY))
    (delivery,) = town.place(note)
    assert (delivery.state, delivery.amount) == (DeliveryState.STORED, price_of(note))
    town.clock.now += 2 * DAY
    assert town.agent("bob").events.get(note.id) is not None


@pytest.mark.parametrize("later", [0, PACKET_SECONDS + 5, 3 * DAY])
def test_what_has_failed_is_tried_again_where_the_owner_asks_for_it(
    town: BroadcastTown, later: int
) -> None:
    town.hubs("bob", "carol")
    town.change("bob", blocked_pubkeys=frozenset({town.alice.settings.pubkey}))
    note = town.note()
    town.place(note)
    town.change("bob", blocked_pubkeys=frozenset(), price_per_byte=20)
    town.clock.now += later
    assert [each.state for each in town.place(note)] == [DeliveryState.FAILED, DeliveryState.STORED]

    broadcast(town.alice, note, retry_failed=True)

    bob, carol = town.deliver(note)
    assert (bob.state, bob.amount, bob.attempts) == (DeliveryState.STORED, 2 * price_of(note), 1)
    assert carol.amount == price_of(note)
    days = {START // DAY, town.alice.now // DAY}
    assert sum(map(town.alice.outbox.spent_on, days)) == 3 * price_of(note)
    assert town.alice.outbox.due(town.alice.now + 2**30, 9) == []


def test_a_refusal_is_told_and_final(town: BroadcastTown) -> None:
    town.change("bob", blocked_pubkeys=frozenset({town.alice.settings.pubkey}))
    (delivery,) = town.place(town.note())
    assert delivery.state is DeliveryState.FAILED
    assert delivery.why.startswith("F99 blocked")
    town.check_books("bob")


def test_no_more_is_spent_on_an_event_than_it_may_cost(town: BroadcastTown) -> None:
    note = town.note()
    town.hubs("bob", "carol", broadcast_event_budget=price_of(note) * 3 // 2)
    deliveries = town.place(note)
    assert sorted(each.state for each in deliveries) == [DeliveryState.FAILED, DeliveryState.STORED]
    assert {each.why for each in deliveries} == {"", "over the budget of the event"}
    town.check_books("bob", "carol")


def test_what_the_day_has_no_room_for_is_done_the_next_day(town: BroadcastTown) -> None:
    town.clock.now = (START // DAY) * DAY + 1000
    note = town.note()
    price = price_of(note)
    town.hubs("bob", "carol", broadcast_day_budget=price * 3 // 2)
    deliveries = town.place(note)
    waiting = [each for each in deliveries if each.state is DeliveryState.DUE]
    assert [each.due for each in waiting] == [(START // DAY + 1) * DAY]
    deliveries = town.deliver(note, after=DAY)
    assert {each.state for each in deliveries} == {DeliveryState.STORED}
    today = int(town.clock()) // DAY
    assert [town.alice.outbox.spent_on(day) for day in (today - 1, today)] == [price, price]


def test_a_crash_after_the_payment_pays_nothing_twice(
    town: BroadcastTown, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = town.note()
    with monkeypatch.context() as broken:
        broken.setattr(Outbox, "finish", _crash)
        (delivery,) = town.place(note)
    assert delivery.state is DeliveryState.DUE
    assert town.agent("bob").events.get(note.id) is not None
    (delivery,) = town.deliver(note, after=LEASE)
    assert (delivery.state, delivery.amount) == (DeliveryState.STORED, price_of(note))
    assert town.wire.seen.count("bob") == 1, "the receipt knows"
    town.check_books("bob")


def test_what_was_paid_before_a_crash_is_not_lost_to_the_next_days_budget(
    town: BroadcastTown, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The day of the payment keeps it, though the amount would not fit into any later day."""
    note = town.note()
    with monkeypatch.context() as broken:
        broken.setattr(Outbox, "finish", _crash)
        town.place(note)
    paid_on = int(town.clock()) // DAY
    town.hubs("bob", broadcast_day_budget=price_of(note) - 1)
    (delivery,) = town.deliver(note, after=DAY)
    assert (delivery.state, delivery.amount) == (DeliveryState.STORED, price_of(note))
    days = [town.alice.outbox.spent_on(day) for day in (paid_on, paid_on + 1)]
    assert days == [price_of(note), 0]


def test_what_was_paid_before_a_crash_is_told_though_the_event_is_gone(
    town: BroadcastTown, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = town.note()
    with monkeypatch.context() as broken:
        broken.setattr(Outbox, "finish", _crash)
        town.place(note)
    secret = bytes.fromhex(town.alice.settings.secret_key)
    town.alice.events.save(signed(secret, kind=5, tags=[["e", note.id]], created_at=START))
    (delivery,) = town.deliver(note, after=LEASE)
    assert (delivery.state, delivery.amount) == (DeliveryState.STORED, price_of(note))
    town.check_books("bob")


def _crash(*_: object, **__: object) -> None:
    raise KeyError("the power has failed")


def test_a_lost_answer_is_paid_once(town: BroadcastTown) -> None:
    """The relay has stored it and counts on the money: the same packet again, and it says so."""
    town.wire.lose_answers = 1
    note = town.note()
    (delivery,) = town.place(note)
    assert (delivery.state, delivery.why[:3]) == (DeliveryState.DUE, "R00")
    (delivery,) = town.deliver(note, after=30)
    assert delivery.state is DeliveryState.STORED
    assert town.wire.seen.count("bob") == 2
    town.check_books("bob")


def test_a_packet_is_not_sent_again_while_it_may_be_on_its_way(town: BroadcastTown) -> None:
    """Two equal packets at once would both be charged by a connector between."""
    town.hubs("bob", broadcast_retry_seconds=1)
    town.wire.lose_answers = 1
    note = town.note()
    town.place(note)
    town.deliver(note, after=PACKET_SECONDS - 1)
    assert town.wire.seen.count("bob") == 1
    (delivery,) = town.deliver(note, after=LEASE - PACKET_SECONDS + 1)
    assert (delivery.state, town.wire.seen.count("bob")) == (DeliveryState.STORED, 2)


def test_two_workers_send_one_packet(town: BroadcastTown) -> None:
    note = town.note()
    broadcast(town.alice, note)
    (due,) = town.alice.outbox.due(town.alice.now, 10)
    town.alice.outbox.take(due, town.alice.now + 60)
    town.deliver(note)
    assert "bob" not in town.wire.seen


def test_relays_that_lose_what_they_were_paid_for_lose_their_place(town: BroadcastTown) -> None:
    town.hubs("bob", "carol", broadcast_check_percent=100, broadcast_check_seconds=60)
    note = town.note()
    town.place(note)
    bob = town.agent("bob")
    bob.events._delete_event(  # as if it had never been
        (note.id, "e"), note.pubkey, {"j": note.to_json(), "p": note.pubkey, "k": 1, "c": 0}
    )
    town.deliver(note, after=60)
    records = {each.relay: (each.kept, each.lost) for each in town.alice.outbox.relays()}
    assert records == {"ws://bob": (0, 1), "ws://carol": (1, 0)}
    assert [each.relay for each in targets_of(town.alice, note)] == ["ws://carol"]
    # A loss is forgiven in time, or by the owner.
    town.clock.now += 30 * DAY
    assert has_place(town.alice, "ws://bob")
    town.clock.now -= 30 * DAY
    assert town.alice.outbox.pardon("ws://bob")
    assert has_place(town.alice, "ws://bob")


@pytest.mark.parametrize(
    ("told", "state"),
    [
        (Published(True, ""), DeliveryState.STORED),
        (Published(False, "duplicate: have it"), DeliveryState.STORED),
        (Published(False, "rate-limited: slow down"), DeliveryState.DUE),
        (Published(False, "blocked: not you"), DeliveryState.FAILED),
        (Published(False, ""), DeliveryState.FAILED),
    ],
)
def test_an_ordinary_relay_gets_a_plain_event(
    town: BroadcastTown, told: Published, state: DeliveryState
) -> None:
    town.relays.ordinary["ws://plain"] = told
    town.hubs("plain")
    note = town.note()
    (delivery,) = town.place(note)
    assert (delivery.state, delivery.amount) == (state, 0)
    assert town.relays.published == [("ws://plain", note.id)]


def test_an_event_of_somebody_else_is_paid_by_quote(town: BroadcastTown) -> None:
    theirs = signed(ALICE, content="worth passing on", created_at=int(town.clock()))
    town.alice.events.save(theirs, payment=Payment((), BORROWED, START + DAY))
    old = signed(ALICE, content="an old one", created_at=int(town.clock()) - 2 * 3600)
    rebroadcast(town.alice, [theirs, old])
    (delivery,) = town.deliver(theirs)
    assert (delivery.state, delivery.amount) == (DeliveryState.STORED, price_of(theirs))
    assert town.alice.outbox.broadcast(old.id) is None
    town.check_books("bob")


def test_targets_are_mentioned_keys_followers_and_hubs_each_with_its_share(
    town: BroadcastTown,
) -> None:
    alice = town.alice
    people = [bytes([20 + number] * 32) for number in range(8)]
    keys = [signed(secret).pubkey for secret in people]
    for number, secret in enumerate(people):
        relays = [["r", f"wss://read{number}.example", "read"], ["r", "wss://w.example", "write"]]
        alice.events.save(signed(secret, kind=10002, tags=relays))
    for secret in people[4:]:
        alice.events.save(signed(secret, kind=3, tags=[["p", alice.settings.pubkey]]))
    info = [["ilp_address", "g.agent.x"], ["ilp_endpoint", "https://x.example/ilp"],
            ["asset_code", "USD"], ["asset_scale", "9"]]  # fmt: skip
    alice.events.save(signed(people[0], kind=10032, tags=info))
    town.change("alice", broadcast_shares={"mentioned": 40, "followers": 20, "hubs": 20},
                broadcast_relays=10)  # fmt: skip
    note = town.note(tags=[["p", key] for key in keys[:4]])

    found = [(each.relay, each.group) for each in targets_of(town.alice, note)]

    mentioned = [relay for relay, group in found if group == "mentioned"]
    assert mentioned == ["wss://x.example", *(f"wss://read{n}.example" for n in range(3))]
    assert sum(group == "followers" for _, group in found) == 2
    assert ("ws://bob", "hubs") in found


def test_a_deletion_goes_where_the_event_went(town: BroadcastTown) -> None:
    note = town.note()
    town.place(note)  # at Bob's relay, a hub at that time
    town.hubs()
    town.change("alice", broadcast_shares={"mentioned": 100})
    deletion = town.note("", kind=5, tags=[["e", note.id]])
    town.place(deletion)
    assert [each.relay for each in targets_of(town.alice, deletion)] == ["ws://bob"]
    assert town.agent("bob").events.get(note.id) is None


def test_followers_beyond_what_one_request_may_read_are_left_out(town: BroadcastTown) -> None:
    """An owner whom many events name can broadcast all the same."""
    alice = town.alice
    me = alice.settings.pubkey
    for number in range(30):
        alice.events.save(signed(ALICE, content=f"{number}", tags=[["p", me]]))
        follower = bytes([20 + number] * 32)
        lists = [["p", me]] if number == 0 else [["p", signed(ALICE).pubkey]]
        alice.events.save(signed(follower, kind=3, tags=lists, created_at=START - 1))
    town.change("alice", broadcast_shares={"followers": 50, "hubs": 50}, max_scan=20)
    assert [each.relay for each in targets_of(town.alice, town.note())] == ["ws://bob"]


def test_what_has_not_begun_when_the_server_stops_is_left_for_later(town: BroadcastTown) -> None:
    names = [f"plain{number}" for number in range(40)]
    town.relays.ordinary = {f"ws://{name}": Published(True, "") for name in names}
    town.hubs(*names)
    note = town.note()
    town.place_only(note)
    deliver_due(town.alice, is_stopping=lambda: len(town.relays.published) >= 3)
    assert 3 <= len(town.relays.published) < 20
    town.deliver(note)
    assert len(set(town.relays.published)) == len(town.relays.published) == 40


def test_every_event_of_the_owner_by_setting(town: BroadcastTown) -> None:
    def publish(text: str) -> Event:
        note = town.note(text)
        number_events(town.alice, [Arrival(note.id, note.pubkey, note.kind)])
        return note

    publish("long before")
    assert broadcast_new(town.alice) == 0
    new = publish("new")
    stranger = signed(ALICE, content="of somebody else")
    town.alice.events.save(stranger)
    number_events(town.alice, [Arrival(stranger.id, stranger.pubkey, 1)])
    assert broadcast_new(town.alice) == 1
    assert broadcast_new(town.alice) == 0
    assert [each.event_id for each in town.alice.outbox.broadcasts(10)] == [new.id]


@pytest.mark.parametrize(("kind", "tags"), [(4, []), (20001, []), (1, [["-"]])])
def test_what_is_private_is_not_broadcast(
    town: BroadcastTown, kind: int, tags: list[list[str]]
) -> None:
    with pytest.raises(NotBroadcast):
        broadcast(town.alice, signed(ALICE, kind=kind, tags=tags))
