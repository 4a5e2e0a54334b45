"""AUTH (NIP-42), and what only the authenticated may read."""

import time

import pytest

from tests.e2e.authors import Author
from tests.e2e.client import RawClient
from tests.e2e.test_raw_live import deliver_marker

PRIVATE = pytest.mark.parametrize("kind", [4, 1059])


def test_a_client_authenticates_with_the_challenge(client: RawClient, author: Author):
    assert client.authenticate(author) == (True, "")


def test_the_challenge_is_another_for_each_connection(client: RawClient, connect):
    challenges = {client.challenge(), connect().challenge(), connect().challenge()}
    assert len(challenges) == 3


def test_the_challenge_comes_once(client: RawClient):
    client.challenge()
    for _ in range(3):
        client.count({"kinds": [1]})
    assert not [frame for frame in client.inbox if frame[0] == "AUTH"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"challenge": "0" * 32},
        {"challenge": ""},
        {"relay": "wss://relay.example.com"},
        {"relay": "not a url"},
        {"relay": "ws://[::1"},
        {"kind": 1},
        {"kind": 22243},
        {"created_at": int(time.time()) - 3600},
        {"created_at": int(time.time()) + 3600},
    ],
)
def test_auth_that_is_not_for_here_and_now(client: RawClient, author: Author, wrong: dict):
    accepted, message = client.authenticate(author, **wrong)
    assert (accepted, message.split(":")[0]) == (False, "invalid")
    assert client.refusal("REQ", "dm", {"kinds": [4]}).startswith("auth-required: ")


def test_auth_with_the_challenge_of_another_connection_fails(
    client: RawClient, connect, author: Author
):
    theirs = connect().challenge()
    assert client.authenticate(author, challenge=theirs)[0] is False


def test_auth_with_a_wrong_signature(client: RawClient, author: Author):
    event = author.auth_event(challenge=client.challenge(), relay=client.url)
    forged = {**event, "sig": author.event()["sig"]}
    client.send("AUTH", forged)
    _, _, accepted, message = client.wait_for("OK", event["id"])
    assert (accepted, message.split(":")[0]) == (False, "invalid")


def test_two_keys_on_one_connection(client: RawClient):
    first, second, third = Author(), Author(), Author()
    client.store(*(Author().event(kind=1059, tags=[["p", to.pubkey]])
                   for to in (first, second, third)))  # fmt: skip
    challenge = client.challenge()
    for who in (first, second):
        client.send("AUTH", event := who.auth_event(challenge=challenge, relay=client.url))
        assert client.wait_for("OK", event["id"])[2] is True
    keys = [first.pubkey, second.pubkey, third.pubkey]
    assert len(client.ask({"kinds": [1059], "#p": keys})) == 2


@PRIVATE
def test_stored_private_events_go_to_their_parties_only(client: RawClient, connect, kind: int):
    sender, receiver, stranger = Author(), Author(), Author()
    message = sender.event(kind=kind, tags=[["p", receiver.pubkey]])
    client.store(message)
    requests = [
        {"kinds": [kind], "#p": [receiver.pubkey]},
        {"authors": [sender.pubkey]},
        {"ids": [message["id"]]},
        {"#p": [receiver.pubkey]},
    ]
    for who, sees in ((sender, True), (receiver, True), (stranger, False)):
        reader = connect()
        assert reader.authenticate(who) == (True, "")
        for filter in requests:
            assert reader.ids(filter) == ([message["id"]] if sees else [])
            assert reader.count(filter) == {"count": int(sees)}

    nobody = connect()
    for filter in requests[1:]:
        assert nobody.ids(filter) == []
        assert nobody.count(filter) == {"count": 0}
    assert nobody.refusal("REQ", "dm", requests[0]).startswith("auth-required: ")
    assert nobody.refusal("COUNT", "dm", requests[0]).startswith("auth-required: ")


@PRIVATE
def test_live_private_events_go_to_their_parties_only(client: RawClient, connect, kind: int):
    sender, receiver, stranger = Author(), Author(), Author()
    listeners = {"sender": connect(), "receiver": connect(), "stranger": connect()}
    for who, listener in zip((sender, receiver, stranger), listeners.values(), strict=True):
        assert listener.authenticate(who) == (True, "")
        listener.request("dm", {"kinds": [kind], "#p": [receiver.pubkey]})
    nobody = listeners["nobody"] = connect()
    nobody.request("dm", {"#p": [receiver.pubkey]})

    message = sender.event(kind=kind, tags=[["p", receiver.pubkey]])
    assert client.publish(message) == (True, "")
    for name, listener in listeners.items():
        deliver_marker(listener, client)
        got = [frame[2] for frame in listener.inbox if frame[:2] == ["EVENT", "dm"]]
        assert got == ([message] if name in ("sender", "receiver") else [])


@PRIVATE
def test_authenticating_later_opens_a_subscription_that_was_there(
    client: RawClient, connect, kind: int
):
    receiver = Author()
    client.request("dm", {"#p": [receiver.pubkey]})
    assert client.authenticate(receiver) == (True, "")
    message = Author().event(kind=kind, tags=[["p", receiver.pubkey]])
    assert connect().publish(message) == (True, "")
    assert client.wait_for("EVENT", "dm")[2] == message


def test_private_kinds_among_others_are_left_out(client: RawClient, author: Author):
    note, message = author.event(), author.event(kind=4, tags=[["p", Author().pubkey]])
    client.store(note, message)
    assert client.ids({"authors": [author.pubkey], "kinds": [1, 4]}) == [note["id"]]
    assert client.count({"authors": [author.pubkey], "kinds": [1, 4]}) == {"count": 1}


def test_limit_counts_only_what_may_be_read(client: RawClient, author: Author):
    notes = [author.event(created_at=1_700_000_000 + number) for number in range(3)]
    hidden = [
        author.event(kind=4, created_at=1_700_000_100 + number, tags=[["p", Author().pubkey]])
        for number in range(5)
    ]
    client.store(*notes, *hidden)
    assert len(client.ids({"authors": [author.pubkey], "limit": 3})) == 3
