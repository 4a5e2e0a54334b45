"""EVENT and its OK: what is stored, replaced, deleted, passed on only, or refused."""

import json
import time

import pytest

from tests.e2e.authors import Author
from tests.e2e.client import RawClient

NOW = int(time.time())


def test_a_duplicate_is_fine_and_stored_once(client: RawClient, author: Author):
    event = author.event()
    client.store(event)
    accepted, message = client.publish(event)
    assert accepted
    assert message.startswith("duplicate: ")
    assert client.ids({"authors": [author.pubkey]}) == [event["id"]]


def test_pipelined_events_are_all_answered_before_what_was_sent_after_them(
    client: RawClient, author: Author
):
    events = [author.event() for _ in range(300)]
    client.send_text(*(json.dumps(["EVENT", event]) for event in events))
    client.send("COUNT", "then", {"authors": [author.pubkey]})
    client.send("EVENT", late := author.event())

    assert client.wait_for("COUNT", "then")[2] == {"count": 300}
    answers = {frame[1]: frame[2:] for frame in client.inbox if frame[0] == "OK"}
    assert answers == {event["id"]: [True, ""] for event in events}
    assert client.wait_for("OK", late["id"])[2:] == [True, ""]


@pytest.mark.parametrize("kind", [0, 3, 10002, 19999])
def test_only_the_newest_version_of_a_replaceable_event_is_stored(
    client: RawClient, author: Author, kind: int
):
    old = author.event(kind=kind, created_at=NOW - 20)
    newer = author.event(kind=kind, created_at=NOW - 10)
    between = author.event(kind=kind, created_at=NOW - 15)
    client.store(old)
    client.store(newer)

    accepted, message = client.publish(between)
    assert (accepted, message.split(":")[0]) == (False, "duplicate")
    for filter in ({"authors": [author.pubkey]}, {"authors": [author.pubkey], "kinds": [kind]}):
        assert client.ids(filter) == [newer["id"]]
    assert client.ids({"ids": [old["id"], between["id"]]}) == []


def test_of_two_versions_of_one_second_the_lowest_id_stays(client: RawClient):
    for _ in range(4):
        author = Author()
        low, high = sorted(
            (author.event(kind=10002, created_at=NOW) for _ in range(2)), key=lambda e: e["id"]
        )
        client.store(high)
        client.store(low)
        assert not client.publish(high)[0]
        assert client.ask({"authors": [author.pubkey]})[0]["id"] == low["id"]


def test_each_address_has_its_newest_version(client: RawClient, author: Author):
    def version(d: str, created_at: int) -> dict:
        return author.event(kind=30023, created_at=created_at, tags=[["d", d], ["t", "x"]])

    a1, a2, b1 = version("a", NOW - 9), version("a", NOW - 5), version("b", NOW - 7)
    client.store(a1)
    client.store(b1)
    client.store(a2)
    mine = {"authors": [author.pubkey]}
    assert client.ids(mine) == [a2["id"], b1["id"]]
    assert client.ids({**mine, "#d": ["a"]}) == [a2["id"]]
    assert client.ids({**mine, "#t": ["x"]}) == [a2["id"], b1["id"]]


def test_of_concurrent_versions_the_newest_that_was_accepted_stands(
    client: RawClient, author: Author
):
    versions = [author.event(kind=10002, created_at=NOW - number) for number in range(40)]
    client.send_text(*(json.dumps(["EVENT", event]) for event in versions[::-1]))
    answers = {event["id"]: client.wait_for("OK", event["id"]) for event in versions}
    newest = next(event for event in versions if answers[event["id"]][2])
    assert set(client.ids({"authors": [author.pubkey]})) == {newest["id"]}
    assert client.count({"authors": [author.pubkey]}) == {"count": 1}
    reasons = {reason.split(":")[0] for _, _, fine, reason in answers.values() if not fine}
    assert reasons <= {"duplicate", "error"}  # an error asks to try again
    assert client.publish(versions[0])[0]


def test_only_the_author_deletes_by_id_and_for_good(client: RawClient, author: Author):
    event, kept = author.event(), author.event()
    client.store(event, kept)
    stranger = Author().event(kind=5, tags=[["e", event["id"]]])
    client.store(stranger)
    assert client.ids({"ids": [event["id"]]}) == [event["id"]]

    deletion = author.event(kind=5, tags=[["e", event["id"]]])
    client.store(deletion)
    assert set(client.ids({"authors": [author.pubkey]})) == {kept["id"], deletion["id"]}
    assert client.count({"ids": [event["id"]]}) == {"count": 0}
    accepted, message = client.publish(event)
    assert (accepted, message.split(":")[0]) == (False, "blocked")


def test_a_deletion_that_comes_first_counts_for_the_author_only(client: RawClient, author: Author):
    event = author.event()
    client.store(Author().event(kind=5, tags=[["e", event["id"]]]))
    client.store(event)
    second = author.event()
    client.store(author.event(kind=5, tags=[["e", second["id"]]]))
    assert client.publish(second)[0] is False
    assert client.ids({"ids": [event["id"], second["id"]]}) == [event["id"]]


def test_a_deletion_by_address_covers_versions_up_to_its_time(client: RawClient, author: Author):
    def version(created_at: int) -> dict:
        return author.event(kind=30023, created_at=created_at, tags=[["d", "a"]])

    client.store(version(NOW - 20))
    address = f"30023:{author.pubkey}:a"
    client.store(author.event(kind=5, created_at=NOW - 10, tags=[["a", address]]))
    mine = {"authors": [author.pubkey], "kinds": [30023]}
    assert client.ids(mine) == []
    accepted, message = client.publish(version(NOW - 15))
    assert (accepted, message.split(":")[0]) == (False, "blocked")
    newer = version(NOW - 5)
    client.store(newer)
    assert client.ids(mine) == [newer["id"]]


def test_ephemeral_events_are_delivered_and_not_stored(client: RawClient, connect, author: Author):
    listener = connect()
    assert listener.request("live", {"authors": [author.pubkey]}) == []
    event = author.event(kind=20001)
    assert client.publish(event) == (True, "")
    assert listener.wait_for("EVENT", "live")[2] == event
    assert client.ids({"authors": [author.pubkey]}, {"ids": [event["id"]]}) == []


def test_expired_events_are_refused_and_those_that_expire_vanish(client: RawClient, author: Author):
    past = author.event(tags=[["expiration", str(NOW - 1)]])
    accepted, message = client.publish(past)
    assert (accepted, message.split(":")[0]) == (False, "invalid")

    soon = int(time.time()) + 2
    brief = author.event(tags=[["expiration", str(soon)]])
    lasting = author.event(tags=[["expiration", str(NOW + 3600)]])
    client.store(brief, lasting)
    found = {brief["id"], lasting["id"]}
    while time.time() < soon:  # asks all the while
        found = set(client.ids({"authors": [author.pubkey]}))
    assert set(client.ids({"authors": [author.pubkey]})) == {lasting["id"]}
    assert client.ids({"ids": [brief["id"]]}) == []
    assert found <= {brief["id"], lasting["id"]}


def test_created_at_in_the_future(client: RawClient, author: Author):
    accepted, message = client.publish(author.event(created_at=NOW + 2000))
    assert (accepted, message.split(":")[0]) == (False, "invalid")
    assert client.publish(author.event(created_at=NOW + 500)) == (True, "")


def test_protected_events_only_from_their_author(client: RawClient, connect, author: Author):
    event = author.event(tags=[["-"]])
    accepted, message = client.publish(event)
    assert (accepted, message.split(":")[0]) == (False, "auth-required")

    someone = connect()
    assert someone.authenticate(Author()) == (True, "")
    accepted, message = someone.publish(event)
    assert (accepted, message.split(":")[0]) == (False, "auth-required")
    assert client.ids({"ids": [event["id"]]}) == []

    assert client.authenticate(author) == (True, "")
    assert client.publish(event) == (True, "")
    assert connect().ids({"ids": [event["id"]]}) == [event["id"]]


def test_a_wrong_id_or_signature(client: RawClient, author: Author):
    event = author.event()
    other = author.event()
    wrong = [
        {**event, "content": "altered"},
        {**event, "id": other["id"]},
        {**event, "sig": other["sig"]},
        {**event, "pubkey": Author().pubkey},
        {**event, "pubkey": "f" * 64},
    ]
    for altered in wrong:
        accepted, message = client.publish(altered)
        assert (accepted, message.split(":")[0]) == (False, "invalid")
    assert client.ids({"authors": [author.pubkey]}) == []


def test_kind_22242_is_never_published(client: RawClient, author: Author):
    assert client.publish(author.event(kind=22242))[0] is False


def test_messages_above_the_rate_are_refused_and_then_disconnected(start_relay, connect):
    relay = start_relay(price_per_byte=0, requests_per_second=1, request_burst=20)
    client, author = connect(relay), Author()
    events = [author.event() for _ in range(30)]
    client.send_text(*(json.dumps(["EVENT", event]) for event in events))
    answers = {event["id"]: client.wait_for("OK", event["id"])[2:] for event in events}
    accepted = {event_id for event_id, (fine, _) in answers.items() if fine}
    assert 20 <= len(accepted) < 30
    reasons = {reason.split(":")[0] for fine, reason in answers.values() if not fine}
    assert reasons == {"rate-limited"}
    # What was refused was not stored, and others are not held up.
    assert set(connect(relay).ids({"authors": [author.pubkey]})) == accepted

    client.send_text(*[json.dumps(["CLOSE", "x"])] * 40)
    assert client.wait_for_close() == 1008
