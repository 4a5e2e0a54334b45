"""Who may write without paying: the owner, whom the owner lets, and anyone where it is free."""

import stat

import pytest

from tests.e2e.authors import Author
from tests.e2e.client import RawClient
from tests.e2e.relay_process import RelayProcess


@pytest.fixture(scope="module")
def owner() -> Author:
    return Author()


@pytest.fixture(scope="module")
def friend() -> Author:
    return Author()


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory, owner: Author, friend: Author):
    """One that has its price."""
    data = tmp_path_factory.mktemp("gate") / "data"
    settings = {"secret_key": owner.secret, "free_pubkeys": f"{friend.pubkey}, {'a' * 64}"}
    relay = RelayProcess(data, **settings).start()
    yield relay
    assert relay.stop() == 0
    relay.check_log()


@pytest.mark.parametrize("kind", [1, 0, 5, 7, 4, 1059, 30023, 10002])
def test_a_stranger_is_told_where_to_pay_and_nothing_is_stored(
    client: RawClient, relay: RelayProcess, kind: int
):
    stranger = Author()
    event = stranger.event(kind=kind, tags=[["d", "x"], ["e", "0" * 64]])
    accepted, reason = client.publish(event)
    assert not accepted
    assert reason.startswith("restricted: ")
    assert f"fill your purse at {relay.http.rpartition(':')[0]}" in reason
    assert client.ids({"ids": [event["id"]]}, {"authors": [stranger.pubkey]}) == []


def test_an_ephemeral_event_of_a_stranger_reaches_nobody(client: RawClient, connect, owner: Author):
    listener = connect()
    listener.request("live", {"kinds": [20001]})
    assert client.publish(Author().event(kind=20001))[0] is False
    assert client.publish(mine := owner.event(kind=20001)) == (True, "")
    assert listener.wait_for("EVENT", "live")[2] == mine


def test_authenticating_pays_for_nothing(client: RawClient):
    stranger = Author()
    assert client.authenticate(stranger) == (True, "")
    assert client.publish(stranger.event())[0] is False


def test_a_wrong_signature_in_the_owners_name(client: RawClient, owner: Author):
    forged = {**Author().event(), "pubkey": owner.pubkey}
    accepted, reason = client.publish(forged)
    assert (accepted, reason.split(":")[0]) == (False, "invalid")


def test_the_owner_and_friends_write_for_free(client: RawClient, owner: Author, friend: Author):
    for author in (owner, friend):
        client.store(event := author.event())
        assert event["id"] in client.ids({"authors": [author.pubkey]})


def test_the_owners_key_is_the_relays(relay: RelayProcess, owner: Author):
    assert relay.pubkey == owner.pubkey
    assert not (relay.data / "secret-key").exists()


def test_where_the_price_is_zero_anyone_writes(start_relay, connect):
    client = connect(start_relay(price_per_byte=0))
    client.store(event := Author().event())
    assert event["id"] in client.ids({})


def test_those_who_are_blocked_do_not_write_even_so(start_relay, connect):
    troll = Author()
    client = connect(start_relay(price_per_byte=0, blocked_pubkeys=troll.pubkey))
    accepted, reason = client.publish(troll.event())
    assert (accepted, reason.split(":")[0]) == (False, "blocked")


def test_the_first_run_makes_a_key_and_the_second_keeps_it(start_relay, connect):
    first = start_relay()
    key_file = first.data / "secret-key"
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    assert [path.name for path in first.data.glob("secret-key*")] == ["secret-key"]
    owner = Author(key_file.read_text().strip())
    assert owner.pubkey == first.pubkey
    connect(first).store(event := owner.event())
    assert first.stop() == 0

    second = start_relay()
    assert second.pubkey == first.pubkey
    assert connect(second).ids({"ids": [event["id"]]}) == [event["id"]]


def test_each_data_folder_has_a_key_of_its_own(start_relay):
    assert start_relay("one").pubkey != start_relay("two").pubkey
