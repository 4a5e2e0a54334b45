"""Moderation by the commands, beside a running server."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from farthing.store.rules import RuleBook, Subject
from farthing.store.sqlite import SqliteEngine
from tests.e2e.authors import Author
from tests.e2e.client import RawClient
from tests.e2e.paying import command, free_port, http
from tests.e2e.purses import nostr_authorization
from tests.e2e.relay_process import RelayProcess


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayProcess]:
    data = tmp_path_factory.mktemp("moderation") / "data"
    relay = RelayProcess(data, port=free_port(), price_per_byte=0).start()
    yield relay
    assert relay.stop() == 0
    relay.check_log()


def farthing(relay: RelayProcess, *arguments: str) -> str:
    done = command(relay, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refusal(client: RawClient, author: Author) -> str:
    """What an EVENT of the author is answered, once a rule has come into force."""
    until = time.monotonic() + 5
    while True:
        accepted, message = client.publish(author.event("again"))
        if not accepted or time.monotonic() > until:
            return message


def test_a_banned_key_is_refused_at_once_by_the_running_server(
    relay: RelayProcess, client: RawClient
) -> None:
    author = Author()
    client.store(author.event("one"), author.event("two"))

    farthing(relay, "ban", author.pubkey, "--reason", "spam")

    assert refusal(client, author) == "blocked: author is banned here"
    # Whatever slipped in before the rule came into force goes with the next sweep.
    assert not {"one", "two"} & {
        each["content"] for each in client.ask({"authors": [author.pubkey]})
    }
    assert f"key    {author.pubkey}  spam" in farthing(relay, "ban").splitlines()
    farthing(relay, "unban", author.pubkey)
    assert author.pubkey not in farthing(relay, "ban")
    assert command(relay, "unban", author.pubkey).returncode == 1


def test_events_are_banned_and_keys_allowed(relay: RelayProcess, client: RawClient) -> None:
    event = Author().event("one")
    client.store(event)

    assert "event" in farthing(relay, "ban", "--event", event["id"])

    assert client.ask({"ids": [event["id"]]}) == []
    assert f"event  {event['id']}" in farthing(relay, "ban").splitlines()
    assert "no longer" in farthing(relay, "unban", event["id"])

    friend = Author().pubkey
    farthing(relay, "allow", friend, "--reason", "a friend")
    assert f"{friend}  a friend" in farthing(relay, "allow").splitlines()
    farthing(relay, "allow", friend, "--end")
    assert friend not in farthing(relay, "allow")
    assert command(relay, "allow", friend, "--end").returncode == 1


@pytest.mark.parametrize("typed", ["", "npub1", "me"])
def test_what_is_neither_a_key_nor_an_event_is_refused(relay: RelayProcess, typed: str) -> None:
    done = command(relay, "ban", typed)
    assert done.returncode == 2
    assert "expected a public key or an event id" in done.stderr


def test_scan_finds_events_and_delete_removes_them(relay: RelayProcess, client: RawClient) -> None:
    author = Author()
    events = [author.event(f"note {n}", tags=[["t", "scan"]]) for n in range(3)]
    client.store(*events)
    filter = json.dumps({"#t": ["scan"]})
    assert farthing(relay, "scan", "--filter", filter, "--count").strip() == "3"
    assert len(farthing(relay, "scan", "--filter", filter, "--limit", "2").splitlines()) == 2

    whole = farthing(relay, "scan", "--filter", filter, "--json").splitlines()
    assert {json.loads(line)["id"] for line in whole} == {event["id"] for event in events}
    assert "3 events would be removed" in farthing(relay, "delete", "--filter", filter, "--dry-run")
    assert "1 event removed" in farthing(relay, "delete", "--id", events[0]["id"])

    assert {event["id"] for event in client.ask({"#t": ["scan"]})} == {
        event["id"] for event in events[1:]
    }
    assert command(relay, "delete", "--filter", "{}").returncode == 1
    assert "0 differences" in farthing(relay, "audit")


def test_a_blocked_address_gets_nowhere(tmp_path: Path) -> None:
    """Also behind a proxy that is trusted to name its clients."""
    relay = RelayProcess(
        tmp_path / "data", port=free_port(), trusted_proxies="127.0.0.1", price_per_byte=0
    ).start()
    engine = SqliteEngine(relay.data)
    try:
        RuleBook(engine).set(Subject.BLOCKED_IP, "203.0.113.9", "", 0)

        def status(client: str) -> int:
            return http("GET", f"{relay.http}/healthz", X_Forwarded_For=client).status

        until = time.monotonic() + 5
        while status("203.0.113.9") != 403:
            assert time.monotonic() < until
        assert status("203.0.113.10") == 200
    finally:
        engine.close()
        assert relay.stop() == 0


def test_a_key_banned_by_the_management_api_is_refused_by_another_process(
    relay: RelayProcess, client: RawClient, tmp_path: Path
) -> None:
    """NIP-86 as the NIP describes it; tests/interop has the same by a client library."""
    author = Author()
    secret = (relay.data / "secret-key").read_text().strip()
    url = f"{relay.http}/"

    def manage(method: str, *params: str) -> dict[str, object]:
        body = json.dumps({"method": method, "params": params}).encode()
        answer = http(
            "POST", url, body, Content_Type="application/nostr+json+rpc",
            Authorization=nostr_authorization(secret, "POST", url, body),
        )  # fmt: skip
        assert answer.status == 200, answer.data
        said: dict[str, object] = answer.json()
        return said

    assert manage("banpubkey", author.pubkey, "spam") == {"result": True}

    file = tmp_path / "one.jsonl"
    file.write_text(json.dumps(author.event()))
    assert "blocked: author is banned here" in command(relay, "import", str(file), "--quiet").stdout
    assert refusal(client, author) == "blocked: author is banned here"
    assert {"pubkey": author.pubkey, "reason": "spam"} in manage("listbannedpubkeys")["result"]  # type: ignore[operator]
    shown = http(
        "GET", f"{url}v1/operator",
        Authorization=nostr_authorization(secret, "GET", f"{url}v1/operator"),
    ).json()  # fmt: skip
    assert shown["connections"] == 1  # the client's
