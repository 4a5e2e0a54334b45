"""Subscriptions by pull: prices, order, credit, and what each message is answered with."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import orjson
import pytest

from farthing.agent.audit import audit
from farthing.btp_nips.identity import key_owner
from farthing.btp_nips.messages import Ceilings, Close, Delivery, EventMessage, Payment
from farthing.btp_nips.models import Model
from farthing.btp_nips.positions import START, live, parse_position
from farthing.context import Agent
from farthing.ilp.packet import Fulfill, Reject
from farthing.ports.meter import Metric
from farthing.relay.sequence import number_events
from farthing.store.changes import Arrival
from farthing.store.ledger import Peer
from farthing.store.payment import OWNER
from farthing.store.sqlite import SqliteEngine
from tests.ilp.paying import expiry, paid_agent, posted, send
from tests.relay.world import ALICE, Clock, counts_of, signed
from tests.subscriptions.world import (
    NOTES,
    SUBSCRIBER,
    Answer,
    Subscriber,
    ids,
    note,
    refusal,
    store,
    store_notes,
)


@pytest.fixture
def subscriber(agent: Agent) -> Subscriber:
    return Subscriber(agent)


def test_stored_events_come_oldest_first_then_eose_then_new_ones(
    agent: Agent, subscriber: Subscriber
) -> None:
    stored = store_notes(agent, 3)

    first = subscriber.subscribe(1160, pull=2)
    new = store_notes(agent, 2)
    second = subscriber.pull()
    third = subscriber.pull()

    assert first["price"] == "1160"
    assert first["status"] == "pending"
    assert (first["eventCount"], first["more"], first["position"]) == (3, True, "s:2")
    assert first.names == ["EVENT", "EVENT"]
    assert second.names == ["EVENT", "EOSE", "EVENT", "EVENT"]
    assert second["status"] == "active"
    assert first.events + second.events == ids([*stored, *new])
    assert second["position"] == "n:5"
    assert third.messages == []


def test_stored_events_in_the_cache_are_read_once_and_keep_their_numbers(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = SqliteEngine(tmp_path, clock=clock)
    agent = paid_agent(engine, clock)
    agent = replace(agent, recall=engine.recall(2**20), _parts={})
    subscriber, stored = Subscriber(agent), store_notes(agent, 3)
    agent.events.save(unnumbered := note(), payment=OWNER)
    subscriber.subscribe(1160, "first")
    asked: list[str] = []
    numbers_of = agent.changes.numbers_of

    def noting(ids: Iterable[str]) -> dict[str, int]:
        asked.extend(ids)
        return numbers_of(asked)

    monkeypatch.setattr(agent.changes, "numbers_of", noting)

    answer = subscriber.subscribe(1160, pull=10)
    number_events(agent, [Arrival(unnumbered.id, unnumbered.pubkey, unnumbered.kind)])

    assert asked == [unnumbered.id]
    assert (answer.events, answer["eventCount"]) == (ids(stored), 3)
    assert subscriber.pull().events == [unnumbered.id]
    engine.close()


def test_what_is_drawn_is_revenue(agent: Agent, subscriber: Subscriber) -> None:
    store_notes(agent, 3)
    subscriber.subscribe(1500, model=Model.STREAMING, pull=1)
    assert counts_of(agent)[Metric.REVENUE] == 1010
    subscriber.pull()

    assert counts_of(agent)[Metric.REVENUE] == 1030
    assert counts_of(agent)[Metric.EVENTS_DELIVERED] == 3


@pytest.mark.parametrize(
    ("model", "amount", "price", "fee", "credit"),
    [
        (Model.FREE, 0, "0", "0", "0"),
        (Model.ONE_TIME, 1160, "1160", "0", "0"),
        (Model.ONE_TIME, 2000, "1160", "0", "840"),
        (Model.STREAMING, 1010, "1000", "10", "10"),
        (Model.HYBRID, 10105, "10000", "5", "105"),
    ],
)
def test_a_model_has_its_price(
    subscriber: Subscriber, model: Model, amount: int, price: str, fee: str, credit: str
) -> None:
    answer = subscriber.subscribe(amount, model=model)

    assert (answer["model"], answer["price"], answer["eventFee"]) == (model, price, fee)
    assert answer["credit"] == credit
    assert answer["expiresAt"] == (subscriber.agent.now + 3600) * 1000
    assert posted(subscriber.agent) == amount


@pytest.mark.parametrize(
    ("model", "least"), [(Model.ONE_TIME, 1160), (Model.STREAMING, 1010), (Model.HYBRID, 10005)]
)
def test_below_the_least_amount_the_price_is_told(
    subscriber: Subscriber, model: Model, least: int
) -> None:
    reply = subscriber.send(subscriber.req(filters=[NOTES], model=model), least - 1)

    assert refusal(reply) == ("F04", "payment_insufficient")
    assert isinstance(reply, Reject)
    told = orjson.loads(reply.data)
    assert (told["price"], told["received"]) == (str(least), str(least - 1))
    assert (told["asset_code"], told["asset_scale"]) == ("USD", 9)
    assert told["message"].startswith("[payment_insufficient] ")
    assert posted(subscriber.agent) == 0


def test_each_event_is_drawn_for_once_and_is_free_when_it_is_delivered_again(
    agent: Agent, subscriber: Subscriber
) -> None:
    stored = store_notes(agent, 3)
    subscriber.subscribe(2000, model=Model.STREAMING)

    first = subscriber.pull(2)
    again = subscriber.pull(3, after=START)

    assert first["credit"] == "980"
    assert again.events == ids(stored)
    assert again["credit"] == "970"


def test_who_went_back_too_often_may_still_go_on_where_it_was(
    agent: Agent, subscriber: Subscriber
) -> None:
    few = replace(agent, settings=replace(agent.settings, subscription_replays=3))
    subscriber = Subscriber(few, SUBSCRIBER)
    store_notes(few, 5)
    subscriber.subscribe(2000, model=Model.STREAMING)
    last = subscriber.pull()["position"]
    subscriber.pull(3, after=START)

    assert refusal(subscriber.send(subscriber.req(pull=1))) == ("F99", "limit_exceeded")
    [new] = store_notes(few, 1)
    answer = subscriber.pull(10, after=parse_position(last))

    assert answer.events == [new.id]
    assert answer["credit"] == "940"


def test_credit_that_is_gone_ends_the_subscription_with_a_notice(
    agent: Agent, subscriber: Subscriber
) -> None:
    store_notes(agent, 3)
    subscriber.subscribe(1025, model=Model.STREAMING)

    answer = subscriber.pull()

    assert answer.names == ["EVENT", "EVENT", "NOTICE", "CLOSED"]
    assert answer["status"] == "closed"
    notice, closed = answer.messages[-2:]
    assert notice.message.startswith("[payment_insufficient] ")  # type: ignore[union-attr]
    assert closed.reason == "Subscription credit is used up"  # type: ignore[union-attr]
    assert agent.purses.get(subscriber.pubkey).left == 5
    assert refusal(subscriber.send(subscriber.req(pull=1))) == ("F99", "subscription_not_found")


def test_the_same_with_the_first_req(agent: Agent, subscriber: Subscriber) -> None:
    store_notes(agent, 3)

    answer = subscriber.subscribe(1025, model=Model.STREAMING, pull=10)

    assert answer.names == ["EVENT", "EVENT", "NOTICE", "CLOSED"]
    assert answer["status"] == "closed"
    assert agent.purses.get(subscriber.pubkey).left == 5
    assert agent.paid_subscriptions.totals(key_owner(subscriber.pubkey)).open == 0


@pytest.mark.parametrize(("credit", "left"), [(30, 0), (39, 9)])
def test_credit_and_purse_below_one_fee_end_the_subscription_before_another_event_comes(
    agent: Agent, subscriber: Subscriber, credit: int, left: int
) -> None:
    store_notes(agent, 3)
    subscriber.subscribe(1000 + credit, model=Model.STREAMING)

    answer = subscriber.pull(3)

    assert answer.names == ["EVENT", "EVENT", "EVENT", "EOSE", "NOTICE", "CLOSED"]
    notice = answer.messages[-2]
    assert notice.message.startswith("[payment_insufficient] ")  # type: ignore[union-attr]
    assert (answer["status"], answer["credit"], answer["more"]) == ("closed", "0", False)
    assert agent.purses.get(subscriber.pubkey).left == left


def test_a_purse_that_pays_for_one_more_event_keeps_the_subscription_open(
    agent: Agent, subscriber: Subscriber
) -> None:
    store_notes(agent, 1)
    agent.purses.grant(subscriber.pubkey, 10, agent.now_ms, "grant")
    subscriber.subscribe(1010, model=Model.STREAMING)

    assert subscriber.pull().names == ["EVENT", "EOSE", "NOTICE"]
    store_notes(agent, 1)
    assert subscriber.pull().names == ["EVENT", "NOTICE", "CLOSED"]


def test_credit_is_refilled_from_the_purse_in_steps_of_100_fees(
    agent: Agent, subscriber: Subscriber
) -> None:
    store_notes(agent, 4)
    agent.purses.grant(subscriber.pubkey, 1500, agent.now_ms, "grant")
    subscriber.subscribe(1010, model=Model.STREAMING)

    answer = subscriber.pull(3)

    assert answer["credit"] == str(10 + 1000 - 30)
    assert agent.purses.get(subscriber.pubkey).left == 500
    assert "NOTICE" not in answer.names


def test_a_resumption_token_goes_on_where_it_stands(agent: Agent, subscriber: Subscriber) -> None:
    stored = store_notes(agent, 2)
    first = subscriber.subscribe(1160, pull=10)
    subscriber.close()
    missed = store_notes(agent, 3)

    resumed = subscriber.subscribe(1160, "other", token=first["resumptionToken"], pull=10)

    assert first.events == ids(stored)
    assert resumed.events == ids(missed)
    assert resumed.names == ["EVENT", "EVENT", "EVENT", "EOSE"]


def test_a_token_from_the_middle_of_stored_events(agent: Agent, subscriber: Subscriber) -> None:
    stored = store_notes(agent, 4)
    first = subscriber.subscribe(1160, pull=2)

    resumed = subscriber.subscribe(1160, "other", token=first["resumptionToken"], pull=10)

    assert first.events + resumed.events == ids(stored)


def test_a_token_does_not_make_earlier_events_free(agent: Agent, subscriber: Subscriber) -> None:
    store_notes(agent, 2)
    first = subscriber.subscribe(1160, pull=10)

    subscriber.subscribe(1100, "other", model=Model.STREAMING, token=first["resumptionToken"])
    again = subscriber.pull(10, "other", after=live(0))

    assert again.events == []


def test_another_owners_token_is_refused(agent: Agent, subscriber: Subscriber) -> None:
    token = subscriber.subscribe(1160)["resumptionToken"]
    thief = Subscriber(agent, ALICE)

    reply = thief.send(thief.req(filters=[NOTES], token=token), 1160)

    assert refusal(reply) == ("F00", "token_invalid")


def test_a_top_up_adds_credit_and_time(agent: Agent, subscriber: Subscriber, clock: Clock) -> None:
    subscriber.subscribe(1010, model=Model.STREAMING)
    clock.now += 600

    answer = subscriber.top_up(500, ttl=3600)

    assert answer["credit"] == "510"
    assert answer["expiresAt"] == (agent.now - 600 + 3600 + 3600) * 1000
    assert posted(agent) == 1510


def test_time_of_a_one_time_subscription_costs_by_the_minute(subscriber: Subscriber) -> None:
    subscriber.subscribe(1160 + 100)

    answer = subscriber.top_up(20, ttl=3600)
    reply = subscriber.send(subscriber.req(ttl=86400), 0)

    assert answer["credit"] == "60"
    assert refusal(reply) == ("F04", "payment_insufficient")
    assert isinstance(reply, Reject)
    assert orjson.loads(reply.data)["price"] == str(1440 - 60)


def test_other_filters_replace_at_full_price_and_credit_and_position_stay(
    agent: Agent, subscriber: Subscriber
) -> None:
    old = store_notes(agent, 2)
    subscriber.subscribe(2000, model=Model.STREAMING, pull=10)
    reactions = store(agent, note(kind=7), note(kind=7))

    replaced = subscriber.subscribe(1000, filters=[{"kinds": [1, 7]}], model=Model.STREAMING)
    pulled = subscriber.pull()

    assert (replaced["credit"], replaced["position"]) == ("980", "n:2")
    assert replaced["status"] == "pending"
    assert pulled.names == ["EVENT", "EVENT", "EOSE", "EVENT", "EVENT"]
    assert pulled.events == ids([*old, *reactions])
    assert pulled["credit"] == "940"  # nothing has become free


def test_a_token_from_a_change_of_filters_leaves_no_gap(
    agent: Agent, subscriber: Subscriber
) -> None:
    notes = store_notes(agent, 2)
    subscriber.subscribe(2000, model=Model.STREAMING, pull=10)
    reactions = store(agent, note(kind=7), note(kind=7))
    filters = [{"kinds": [1, 7]}]
    token = subscriber.subscribe(1000, filters=filters, model=Model.STREAMING)["resumptionToken"]
    subscriber.close()

    resumed = subscriber.subscribe(2000, "s2", filters, model=Model.STREAMING, token=token, pull=10)

    assert resumed.events == ids([*notes, *reactions])


def test_status_changes_nothing(agent: Agent, subscriber: Subscriber) -> None:
    store_notes(agent, 1)
    subscriber.subscribe(1020, model=Model.STREAMING)

    assert subscriber.status()["credit"] == "20"
    assert subscriber.status().messages == []
    assert subscriber.pull().names == ["EVENT", "EOSE", "NOTICE"]


def test_money_where_none_is_taken(subscriber: Subscriber) -> None:
    subscriber.subscribe(0, model=Model.FREE)
    close = Close("s1", Payment(), subscriber.metadata())

    assert refusal(subscriber.send(close, 1)) == ("F03", "amount_invalid")
    assert refusal(subscriber.send(subscriber.req(), 1)) == ("F03", "amount_invalid")
    free = subscriber.req("s2", [NOTES], model=Model.FREE)
    assert refusal(subscriber.send(free, 1)) == ("F03", "amount_invalid")
    assert posted(subscriber.agent) == 0


def test_close_moves_what_is_left_to_the_purse_and_can_be_repeated(
    agent: Agent, subscriber: Subscriber, clock: Clock
) -> None:
    subscriber.subscribe(1500, model=Model.STREAMING)

    closed = subscriber.close()
    clock.now += 1
    again = subscriber.close()

    assert closed.fields == {"subscriptionId": "s1", "closed": True, "credit": "500"}
    assert again.fields == closed.fields
    assert agent.purses.get(subscriber.pubkey).left == 500


def test_a_stranger_cannot_name_the_subscription_of_another(
    agent: Agent, subscriber: Subscriber
) -> None:
    subscriber.subscribe(1160)
    thief = Subscriber(agent, ALICE)

    close = Close("s1", Payment(), thief.metadata())
    forged = close._replace(metadata=subscriber.metadata())

    assert refusal(thief.send(close)) == ("F99", "subscription_not_found")
    assert refusal(thief.send(forged)) == ("F05", "condition_unknown")
    assert subscriber.status()["status"] == "pending"


def test_a_keyless_owner_is_the_peer(agent: Agent, subscriber: Subscriber) -> None:
    message = subscriber.req(filters=[NOTES], sender=None)
    prepare = subscriber.packet(message, 1200)
    fulfillment = sha256(prepare.data).digest()
    prepare = replace(prepare, condition=sha256(fulfillment).digest())

    assert isinstance(send(agent, prepare), Fulfill)

    (found,) = agent.paid_subscriptions.all(agent.now)
    assert found.owner == "peer:payer"


def test_a_message_has_its_effect_once(agent: Agent, subscriber: Subscriber) -> None:
    store_notes(agent, 4)
    opened = subscriber.packet(subscriber.req(filters=[NOTES], model=Model.STREAMING), 1200)
    pull = subscriber.packet(subscriber.req(pull=2))
    other = Peer("other", "0" * 64)
    agent.ledger.add_peer(other)

    replies = [send(agent, opened), send(agent, opened), send(agent, pull), send(agent, pull)]

    assert posted(agent) == 1200
    first, again = (orjson.loads(reply.data) for reply in replies[2:])
    assert first == again
    assert first["credit"] == "180"
    assert refusal(send(agent, pull, other)) == ("F99", "message_replayed")
    assert refusal(send(agent, opened, other)) == ("F99", "message_replayed")
    assert isinstance(send(agent, opened), Fulfill)
    assert posted(agent) == 1200


def test_a_message_is_recognised_as_long_as_its_timestamp_is_accepted(
    tmp_path: Path, clock: Clock
) -> None:
    engine = SqliteEngine(tmp_path, clock=clock)
    agent = paid_agent(engine, clock, subscription_skew_seconds=1000)
    subscriber, stored = Subscriber(agent), store_notes(agent, 3)
    subscriber.subscribe(2000, model=Model.STREAMING)
    pull = subscriber.packet(subscriber.req(pull=2, timestamp=agent.now + 1000))
    assert isinstance(send(agent, pull), Fulfill)

    clock.now += 1999
    repeat = send(agent, replace(pull, expires_at=expiry(agent)))

    assert isinstance(repeat, Fulfill)
    answer = Answer(orjson.loads(repeat.data), repeat)
    assert answer.events == ids(stored[:2])
    assert answer["credit"] == "980"
    engine.close()


def test_an_older_timestamp_than_the_last_is_refused(subscriber: Subscriber, clock: Clock) -> None:
    held_back = Close("s1", Payment(), subscriber.metadata())
    clock.now += 2
    subscriber.subscribe(1160)

    assert refusal(subscriber.send(held_back)) == ("F99", "message_outdated")
    assert subscriber.status()["status"] == "pending"


def test_a_timestamp_far_from_now_is_stale(subscriber: Subscriber) -> None:
    for off in (-301, 301):
        message = subscriber.req(filters=[NOTES], timestamp=subscriber.agent.now + off)
        assert refusal(subscriber.send(message, 1160)) == ("F00", "timestamp_stale")


def test_the_end_of_its_time(subscriber: Subscriber, clock: Clock) -> None:
    subscriber.subscribe(1101, ttl=60)
    clock.now += 59
    assert subscriber.pull().names == ["EOSE"]
    clock.now += 1

    assert refusal(subscriber.send(subscriber.req(pull=1))) == ("F99", "expired")
    assert subscriber.top_up(1, ttl=60)["status"] == "active"


def test_a_subscription_above_a_limit_is_rejected(agent: Agent, subscriber: Subscriber) -> None:
    for number in range(10):
        subscriber.subscribe(1160, f"s{number}")

    reply = subscriber.send(subscriber.req("s10", [NOTES]), 1160)

    assert refusal(reply) == ("F99", "limit_exceeded")
    assert posted(agent) == 11600
    subscriber.close("s3")
    subscriber.subscribe(1160, "s10")
    longer = subscriber.req("s3", [NOTES], model=Model.FREE, ttl=3601)
    assert refusal(subscriber.send(longer)) == ("F99", "limit_exceeded")


def test_a_fee_above_the_clients_ceiling_is_rejected(subscriber: Subscriber) -> None:
    low = subscriber.req(filters=[NOTES], model=Model.HYBRID, ceilings=Ceilings(10000, 4))
    high = subscriber.req(filters=[NOTES], ceilings=Ceilings(20000, 6))

    assert refusal(subscriber.send(low, 20000)) == ("F04", "payment_insufficient")
    assert subscriber.ask(high, 20000)["eventFee"] == "5"


def test_filters_of_ephemeral_kinds_only(subscriber: Subscriber) -> None:
    reply = subscriber.send(subscriber.req(filters=[{"kinds": [20001]}]), 5000)

    assert refusal(reply) == ("F00", "filter_invalid")


def test_free_subscriptions_end_after_their_events(
    agent_with: Callable[..., Agent],
) -> None:
    agent = agent_with(subscription_free_events=2)
    store_notes(agent, 3)
    free = Subscriber(agent)
    free.subscribe(0)

    assert free.pull().names == ["EVENT", "EVENT", "NOTICE", "CLOSED"]


def test_private_events_go_to_those_they_name_only(agent: Agent, subscriber: Subscriber) -> None:
    mine = note(kind=4, tags=[["p", subscriber.pubkey]])
    others = note(kind=4, tags=[["p", "e" * 64]])
    store(agent, mine, others)

    answer = subscriber.subscribe(1260, filters=[{"kinds": [1, 4]}], pull=10)
    new = [note(kind=4, tags=[["p", key]]) for key in (subscriber.pubkey, "e" * 64)]
    store(agent, *new)

    assert answer.events == [mine.id]
    assert subscriber.pull().events == [new[0].id]


def test_events_that_are_gone_are_skipped_unpaid(agent: Agent, subscriber: Subscriber) -> None:
    first, second, third = store_notes(agent, 3)
    subscriber.subscribe(1100, model=Model.STREAMING)
    deletion = signed(b"\x03" * 32, kind=5, tags=[["e", second.id]])
    store(agent, deletion)

    answer = subscriber.pull()

    assert answer.events == [first.id, third.id]
    assert answer["credit"] == "80"


def test_an_event_too_large_for_a_packet_is_a_notice_without_a_fee(
    agent: Agent, subscriber: Subscriber
) -> None:
    large, small = store(agent, note(content="x" * 40_000), note())
    subscriber.subscribe(1100, model=Model.STREAMING)

    answer = subscriber.pull()

    assert answer.names == ["NOTICE", "EVENT", "EOSE", "NOTICE"]
    assert answer.messages[0].message == (  # type: ignore[union-attr]
        f"[relay_error] event {large.id} is too large for a packet"
    )
    assert answer.events == [small.id]
    assert answer["credit"] == "90"


def test_an_answer_holds_whole_messages_while_they_fit(
    agent: Agent, subscriber: Subscriber
) -> None:
    events = store(agent, *(note(content="x" * 12_000) for _ in range(3)))
    subscriber.subscribe(1160)

    first, second = subscriber.pull(), subscriber.pull()

    assert first.events == ids(events[:2])
    assert first["more"] is True
    assert second.events == ids(events[2:])
    assert second["more"] is False
    assert len(first.fulfill.data) <= 32767


@pytest.mark.parametrize(
    ("amount", "model"), [(1160, Model.ONE_TIME), (2000, Model.STREAMING), (0, Model.FREE)]
)
def test_octets_stay_free_only_where_the_end_may_be_near(
    agent: Agent, subscriber: Subscriber, amount: int, model: Model
) -> None:
    """Another event would fit the answer, but not the relay's last messages behind it."""
    events = store(agent, *(note(content="x" * 10_020) for _ in range(4)))
    subscriber.subscribe(amount, model=model)

    first = subscriber.ask(pull := subscriber.req(pull=50))
    again, second = subscriber.ask(pull), subscriber.pull()

    assert first.events == again.events == ids(events[:3])
    assert 32_767 - 1200 < len(first.fulfill.data) <= 32_767
    assert (first["more"], second.events) == (True, ids(events[3:]))


def test_last_messages_that_do_not_fit_come_with_the_next_pull(
    agent: Agent, subscriber: Subscriber
) -> None:
    subscriber.subscribe(1010, model=Model.STREAMING, pull=1)
    store_notes(agent, 1, content="x" * 31_500)

    first, second = subscriber.pull(), subscriber.pull()

    assert (first.names, first["more"], first["status"]) == (["EVENT"], True, "active")
    assert (second.names, second["status"]) == (["NOTICE", "CLOSED"], "closed")


def test_count_and_publish_have_their_effect_and_price(
    agent: Agent, subscriber: Subscriber
) -> None:
    store_notes(agent, 3)
    assert subscriber.count(NOTES).fields == {"subscriptionId": "c", "count": 3}
    event = signed(SUBSCRIBER, content="published", created_at=agent.now)
    message = EventMessage(event, Payment(), subscriber.metadata())
    size = len(subscriber.packet(message).data)

    assert subscriber.send(message, size * 10 - 1).code == "F04"  # type: ignore[union-attr]
    answer = subscriber.ask(message, size * 10)

    assert answer.fields == {"eventId": event.id, "accepted": True, "message": ""}
    assert agent.events.get(event.id) is not None


def test_push_without_a_reply_to_is_refused_by_the_codec(subscriber: Subscriber) -> None:
    reply = subscriber.send(subscriber.req(filters=[NOTES], delivery=Delivery.PUSH), 1160)

    assert refusal(reply) == ("F00", "body_invalid")


def test_the_same_octets_under_another_condition_are_refused(
    agent: Agent, subscriber: Subscriber
) -> None:
    """Once it speaks for the key, and once for the peer that brings it."""
    prepare = subscriber.packet(subscriber.req(filters=[NOTES]), 1160)
    by_peer = replace(prepare, condition=sha256(sha256(prepare.data).digest()).digest())

    assert isinstance(send(agent, prepare), Fulfill)
    assert refusal(send(agent, by_peer)) == ("F99", "message_replayed")
    assert posted(agent) == 1160


def test_a_subscription_whose_time_is_over_has_expired_before_any_sweep(
    agent: Agent, subscriber: Subscriber, clock: Clock
) -> None:
    subscriber.subscribe(1160, ttl=60)
    clock.now += 59
    assert subscriber.status()["status"] == "pending"

    clock.now += 1

    assert subscriber.status()["status"] == "expired"


def test_an_event_is_handed_out_if_it_alone_fits_an_answer(
    agent: Agent, subscriber: Subscriber
) -> None:
    """What the relay still has to say comes with the next pull."""
    (large,) = store_notes(agent, 1, content="x" * 31_500)
    (small,) = store_notes(agent, 1)
    opened = subscriber.subscribe(1010, model=Model.STREAMING)

    first, second = subscriber.pull(), subscriber.pull()

    assert (first.events, first.names) == ([large.id], ["EVENT"])
    assert 32_767 - 1200 < len(first.fulfill.data) <= 32_767
    assert (first["credit"], first["more"], first["status"]) == ("0", True, opened["status"])
    assert (second.names, second["status"]) == (["NOTICE", "CLOSED"], "closed")
    assert small.id not in second.events
    assert audit(agent).differences == []


def test_a_repeat_has_no_room_for_the_end_behind_a_large_event(
    agent: Agent, subscriber: Subscriber
) -> None:
    (large,) = store_notes(agent, 1, content="x" * 31_500)
    store_notes(agent, 1)
    subscriber.subscribe(1010, model=Model.STREAMING)
    pull = subscriber.req(pull=50)
    subscriber.ask(pull)
    subscriber.pull()

    again = subscriber.ask(pull)

    assert (again.events, again.names, again["status"]) == ([large.id], ["EVENT"], "closed")
