"""Clients that people use, unmodified: each logs in when the relay asks, and publishes."""

from collections.abc import Iterator
from secrets import token_hex

import pytest

from tests.e2e.relay_process import RelayProcess
from tests.interop.node import needs, run

CLIENTS = [
    pytest.param("publish_nostr_tools.mjs", marks=needs("nostr-tools", "ws")),
    pytest.param("publish_ndk.mjs", marks=needs("@nostr-dev-kit/ndk", "ws")),
    pytest.param("publish_applesauce.mjs", marks=needs("applesauce-relay", "ws")),
]
# Only its author may publish it, so the relay asks who that is (NIP-70).
PROTECTED = [["-"]]


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayProcess]:
    settings = {"price_per_byte": 0, "requests_per_second": 0}
    relay = RelayProcess(tmp_path_factory.mktemp("relay") / "data", **settings).start()
    yield relay
    assert relay.stop() == 0


def publish(client: str, relay: RelayProcess, **request: object) -> dict:
    return run(
        client,
        {"secretKey": token_hex(32), "relay": relay.url, "content": client} | request,
        seconds=60,
    )


@pytest.mark.parametrize("client", CLIENTS)
def test_client_publishes_without_being_asked_to_log_in(client: str, relay: RelayProcess) -> None:
    assert publish(client, relay)["ok"]


@pytest.mark.parametrize("client", CLIENTS)
def test_client_logs_in_when_asked_and_publishes(client: str, relay: RelayProcess) -> None:
    answer = publish(client, relay, tags=PROTECTED)

    assert answer["ok"], answer


@pytest.mark.parametrize("client", CLIENTS[:1])
def test_client_that_does_not_log_in_is_refused(client: str, relay: RelayProcess) -> None:
    answer = publish(client, relay, tags=PROTECTED, login=False)

    assert not answer["ok"] and answer["reason"].startswith("auth-required: ")


@pytest.mark.parametrize("client", CLIENTS)
def test_client_tells_why_it_was_refused(client: str, relay: RelayProcess) -> None:
    answer = publish(client, relay, tags=[["expiration", "1"]])

    assert not answer["ok"] and answer["reason"].startswith("invalid: "), answer
