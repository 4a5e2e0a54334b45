"""Many at once at one subscription: 50 pulls and top-ups, and nothing is lost or charged twice."""

import threading
from collections.abc import Callable

import orjson

from farthing.agent.audit import audit
from farthing.btp_nips.models import Model
from farthing.context import Agent
from farthing.ilp.packet import Fulfill, Prepare, Reject
from tests.ilp.paying import posted, send
from tests.ledger.test_concurrent_payers import at_once
from tests.subscriptions.world import Answer, Subscriber, ids, store_notes

AT_ONCE = 50


def test_50_pulls_and_top_ups_at_once(agent: Agent) -> None:
    subscriber = Subscriber(agent)
    events = store_notes(agent, 40)
    subscriber.subscribe(1000 + 400 + 100, model=Model.STREAMING)
    replies: list[Fulfill | Reject] = []
    lock = threading.Lock()

    def work(prepare: Prepare) -> Callable[[], None]:
        def call() -> None:
            reply = send(agent, prepare)
            with lock:
                replies.append(reply)

        return call

    pulls = [subscriber.packet(subscriber.req(pull=2)) for _ in range(AT_ONCE // 2)]
    top_ups = [subscriber.packet(subscriber.req(), 7) for _ in range(AT_ONCE // 2)]
    at_once([work(prepare) for prepare in (*pulls, *top_ups)])

    assert all(isinstance(reply, Fulfill) for reply in replies), replies
    received = [
        event
        for reply in replies
        for event in Answer(_fields(reply), reply).events  # type: ignore[arg-type]
    ]
    assert sorted(received) == sorted(ids(events))  # each once
    (found,) = agent.paid_subscriptions.all(agent.now)
    assert found.account.credit == 500 + 7 * (AT_ONCE // 2) - 400
    assert posted(agent) == 1500 + 7 * (AT_ONCE // 2)
    assert audit(agent).differences == []


def _fields(reply: Fulfill | Reject) -> dict[str, object]:
    fields: dict[str, object] = orjson.loads(reply.data)
    return fields


def test_one_message_50_times_at_once(agent: Agent) -> None:
    subscriber = Subscriber(agent)
    store_notes(agent, 5)
    prepare = subscriber.packet(
        subscriber.req(filters=[{"kinds": [1]}], model=Model.STREAMING, pull=3), 1200
    )
    replies: list[Fulfill | Reject] = []
    at_once([lambda: replies.append(send(agent, prepare))] * AT_ONCE)

    assert {type(reply) for reply in replies} == {Fulfill}
    assert len({tuple(Answer(_fields(reply), reply).events) for reply in replies}) == 1  # type: ignore[arg-type]
    assert posted(agent) == 1200
    (found,) = agent.paid_subscriptions.all(agent.now)
    assert found.account.credit == 170
    assert audit(agent).differences == []
