"""Clients and wallets that people use, unmodified, against a running relay: they fill purses, log
in when asked, publish, and are refused when the purse is empty."""

from collections.abc import Iterator
from secrets import token_hex
from typing import Any

import pytest

from tests.e2e.authors import Author
from tests.e2e.paying import free_port, token_of
from tests.e2e.purses import PURSES, assert_audit, credit, left
from tests.e2e.relay_process import RelayProcess
from tests.interop.node import needs, run

CLIENTS = [
    pytest.param("publish_nostr_tools.mjs", marks=needs("nostr-tools", "ws")),
    pytest.param("publish_ndk.mjs", marks=needs("@nostr-dev-kit/ndk", "ws")),
    pytest.param("publish_applesauce.mjs", marks=needs("applesauce-relay", "ws")),
]
pays = needs("@interledger/pay", "ilp-packet")
SMALL_PACKET = 100


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayProcess]:
    data = tmp_path_factory.mktemp("relay") / "data"
    settings = {**PURSES, "port": free_port(), "max_packet": SMALL_PACKET}
    relay = RelayProcess(data, **settings).start()
    yield relay
    assert_audit(relay)
    assert relay.stop() == 0
    relay.check_log()


@pytest.fixture
def author() -> Author:
    return Author(token_hex(32))


def publish(client: str, relay: RelayProcess, author: Author, content: str) -> dict[str, Any]:
    request = {"secretKey": author.secret, "relay": relay.url, "content": content}
    answer: dict[str, Any] = run(client, request, seconds=60)
    return answer


def pay(relay: RelayProcess, author: Author, **request: Any) -> dict[str, Any]:
    """Pay through POST /ilp, by the payment pointer of the purse."""
    answer: dict[str, Any] = run(
        "pay.mjs",
        {
            "url": f"{relay.http}/ilp",
            "token": token_of(relay),
            "spspUrl": f"{relay.http}/purse/{author.pubkey}",
            **request,
        },
    )
    return answer


@pytest.mark.parametrize("client", CLIENTS)
def test_client_logs_in_when_asked_and_publishes_until_its_purse_is_empty(
    client: str, relay: RelayProcess, author: Author
) -> None:
    credit(relay, author.pubkey, 5000)

    first = publish(client, relay, author, "from a purse")
    assert first["ok"], first
    rest = left(relay, author)
    assert 0 < rest < 5000

    second = publish(client, relay, author, "from what is left of it")
    assert not second["ok"]
    assert second["reason"].startswith("restricted: this costs "), second
    assert f"{relay.http}/purse/npub1" in second["reason"]
    assert left(relay, author) == rest


@pays
def test_wallet_pays_in_one_packet(relay: RelayProcess, author: Author) -> None:
    paid = pay(relay, author, amountToSend="77")

    assert paid["ok"], paid
    assert paid["amountDelivered"] == "77"
    assert left(relay, author) == 77


@pays
def test_wallet_pays_in_a_thousand_packets_below_the_maximum(
    relay: RelayProcess, author: Author
) -> None:
    paid = pay(relay, author, amountToSend="100003")

    assert paid["ok"], paid
    assert paid["codes"]["F08"] >= 1
    assert paid["codes"]["fulfill"] >= 1000
    assert left(relay, author) == int(paid["amountDelivered"]) == 100003


@pays
def test_wallet_whose_minimum_is_not_met_pays_nothing(relay: RelayProcess, author: Author) -> None:
    refused = pay(relay, author, amountToSend="50", minExchangeRate=[2, 1], minDeliveryAmount="100")

    assert refused["error"]
    assert refused["codes"].get("fulfill", 0) == 0
    assert left(relay, author) == 0


@pays
def test_wallet_may_use_the_media_type_of_plugins(relay: RelayProcess, author: Author) -> None:
    paid = pay(relay, author, amountToSend="5", mediaType="application/ilp+octet-stream")

    assert paid["ok"], paid
    assert left(relay, author) == 5


@pays
@pytest.mark.parametrize("client", CLIENTS[:1])
def test_a_purse_that_a_wallet_filled_pays_for_a_note(
    client: str, relay: RelayProcess, author: Author
) -> None:
    assert pay(relay, author, amountToSend="9000")["ok"]

    answer = publish(client, relay, author, "paid by a wallet")

    assert answer["ok"], answer
