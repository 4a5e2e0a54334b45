"""Subscriptions that stay: delivery, replacement, CLOSE, and limits on how many."""

import json
import threading

from tests.e2e.authors import Author
from tests.e2e.client import Background, RawClient
from tests.e2e.http import metrics
from tests.e2e.relay_process import RelayProcess


def deliver_marker(listener: RawClient, publisher: RawClient) -> None:
    """Returns when all that was stored before has reached the listener: delivery keeps order."""
    marker = Author()
    assert listener.request("marker", {"authors": [marker.pubkey], "limit": 0}) == []
    assert publisher.publish(marker.event()) == (True, "")
    listener.wait_for("EVENT", "marker")
    listener.send("CLOSE", "marker")


def test_live_events_reach_each_subscription_that_wants_them(
    client: RawClient, connect, author: Author
):
    tag = ["t", author.pubkey]
    wanted = {
        "author": {"authors": [author.pubkey]},
        "kind": {"kinds": [1111], "#t": [tag[1]]},
        "tag": {"#t": [tag[1], "else"]},
        "long tag": {"#r": ["x" * 1000 + author.pubkey]},
        "all": {"limit": 0},
    }
    listeners = {name: connect() for name in wanted}
    for name, filter in wanted.items():
        assert listeners[name].request(name, filter) == []
    other = author.event(kind=1)
    event = author.event(kind=1111, tags=[tag, ["r", "x" * 1000 + author.pubkey]])
    client.store(other, event)

    for name, listener in listeners.items():
        deliver_marker(listener, client)
        got = [frame[2]["id"] for frame in listener.inbox if frame[:2] == ["EVENT", name]]
        ours = {event["id"], other["id"]} if name in ("author", "all") else {event["id"]}
        assert set(got) & {event["id"], other["id"]} == ours
        assert len(got) == len(set(got))


def test_a_live_event_must_lie_between_since_and_until(client: RawClient, author: Author):
    event = author.event()
    at = event["created_at"]
    mine = {"authors": [author.pubkey], "limit": 0}
    for name, bounds in {
        "edges": {"since": at, "until": at},
        "before": {"until": at - 1},
        "after": {"since": at + 1},
    }.items():
        assert client.request(name, {**mine, **bounds}) == []
    client.store(event)
    deliver_marker(client, client)
    got = [frame[1] for frame in client.inbox if frame[0] == "EVENT"]
    assert got == ["edges"]


def test_nothing_is_missed_between_stored_and_live(client: RawClient, connect, author: Author):
    """REQs open while events come in: each subscriber sees every single one."""
    events = [author.event() for _ in range(300)]
    publisher = connect()
    publishing = threading.Thread(
        target=publisher.send_text, args=[json.dumps(["EVENT", event]) for event in events]
    )
    subscribers = [connect() for _ in range(2)]
    publishing.start()
    for number in range(20):
        for subscriber in subscribers:
            subscriber.send("REQ", f"s{number}", {"authors": [author.pubkey]})
    publishing.join()
    for event in events:
        assert publisher.wait_for("OK", event["id"])[2] is True

    everything = {event["id"] for event in events}
    for subscriber in subscribers:
        deliver_marker(subscriber, publisher)
        seen: dict[str, set[str]] = {}
        for frame in subscriber.inbox:
            if frame[0] == "EVENT":
                seen.setdefault(frame[1], set()).add(frame[2]["id"])
        missed = {name: len(everything - ids) for name, ids in seen.items() if ids != everything}
        assert len(seen) == 20
        assert not missed


def test_a_req_with_the_same_id_replaces_the_one_before(client: RawClient, connect, author: Author):
    other = Author()
    assert client.request("one", {"authors": [author.pubkey]}) == []
    assert client.request("one", {"authors": [other.pubkey]}) == []
    connect().store(author.event(), wanted := other.event())
    deliver_marker(client, connect())
    got = [frame[2] for frame in client.inbox if frame[:2] == ["EVENT", "one"]]
    assert got == [wanted]


def test_after_close_no_event_is_delivered(client: RawClient, connect, author: Author):
    assert client.request("gone", {"authors": [author.pubkey]}) == []
    client.send("CLOSE", "gone")
    deliver_marker(client, client)
    connect().store(author.event())
    deliver_marker(client, connect())
    assert not [frame for frame in client.inbox if frame[:2] == ["EVENT", "gone"]]


def test_req_and_close_at_once_leave_nothing_open(client: RawClient, connect, author: Author):
    frames = []
    for number in range(100):
        frames += [
            json.dumps(["REQ", f"s{number}", {"authors": [author.pubkey]}]),
            json.dumps(["CLOSE", f"s{number}"]),
        ]
    client.send_text(*frames)
    client.wait_for("EOSE", "s99")
    deliver_marker(client, client)
    connect().store(author.event())
    deliver_marker(client, connect())
    assert not [frame for frame in client.inbox if frame[0] == "EVENT"]


def test_a_thousand_subscriptions_opened_and_closed(client: RawClient):
    for start in range(0, 1000, 40):
        some = [f"s{number}" for number in range(start, start + 40)]
        client.send_text(*(json.dumps(["REQ", name, {"kinds": [1], "limit": 1}]) for name in some))
        for name in some:
            client.wait_for("EOSE", name)
        client.send_text(*(json.dumps(["CLOSE", name]) for name in some))
    assert client.request("last", {"kinds": [9999]}) == []


def test_a_subscription_above_the_limit_is_refused(client: RawClient, connect, author: Author):
    for number in range(50):
        assert client.request(f"s{number}", {"authors": [author.pubkey]}) == []
    assert client.refusal("REQ", "over", {"kinds": [1]}).startswith("error: expected at most 50")

    # One that is open may be replaced; one that is closed makes room; others are not concerned.
    assert client.request("s0", {"authors": [author.pubkey], "kinds": [1]}) == []
    client.send("CLOSE", "s49")
    assert client.request("fits", {"authors": [author.pubkey]}) == []
    assert connect().request("other", {"authors": [author.pubkey]}) == []

    connect().store(author.event())
    deliver = [client.wait_for("EVENT", name) for name in ("s0", "s48", "fits")]
    assert len(deliver) == 3
    assert not [frame for frame in client.inbox if frame[1] in ("over", "s49")]


def test_same_name_on_two_connections(client: RawClient, connect, author: Author):
    second = connect()
    other = Author()
    assert client.request("sub", {"authors": [author.pubkey]}) == []
    assert second.request("sub", {"authors": [other.pubkey]}) == []
    second.send("CLOSE", "sub")
    client.store(event := author.event())
    assert client.wait_for("EVENT", "sub")[2] == event


def delivered(background: Background, relay: RelayProcess) -> int:
    """How many live events the relay has sent to anyone."""
    return int(metrics(background, relay)["farthing_events_delivered_total"])


def test_a_disconnect_forgets_all_subscriptions(start_relay, connect, background: Background):
    relay = start_relay(price_per_byte=0)
    leaving, vanishing, staying = connect(relay), connect(relay), connect(relay)
    staying.request("stays", {"kinds": [1]})
    for client in (leaving, vanishing):
        for number in range(20):
            client.request(f"s{number}", {"kinds": [1, 2], "#t": ["a"]}, {"limit": 1})
    leaving.close()
    vanishing.abort()

    for _ in range(1000):  # each round gives the relay a turn to notice
        before = delivered(background, relay)
        staying.publish(event := Author().event())
        assert staying.wait_for("EVENT", "stays")[2] == event
        if delivered(background, relay) == before + 1:
            return
    raise AssertionError("events still go to those who have left")


def test_subscriptions_outlive_what_the_cloud_grants_a_connection(start_relay, connect):
    """API Gateway ends connections in time; here nobody does, so nothing may expire silently."""
    relay = start_relay(price_per_byte=0, connection_seconds=0)
    client, author = connect(relay), Author()
    assert client.request("live", {"authors": [author.pubkey]}) == []
    connect(relay).publish(event := author.event())
    assert client.wait_for("EVENT", "live")[2] == event
