"""npm `@interledger/pay` pays the pure receiver: what it says it sent is what was booked."""

from base64 import b64encode
from typing import Any

from farthing.ilp.stream_receiver import Limits
from tests.interop.node import needs, run
from tests.interop.stream_server import ASSET, TOKEN, StreamServer, stream_server

pytestmark = needs("@interledger/pay", "ilp-packet")


def pay(server: StreamServer, **request: Any) -> dict:
    connection = server.connection()
    return run(
        "pay.mjs",
        {
            "url": server.url,
            "token": TOKEN,
            "destinationAddress": connection.destination_account,
            "sharedSecret": b64encode(connection.shared_secret).decode(),
        }
        | request,
    )


def test_payment_of_one_packet_is_booked() -> None:
    with stream_server() as server:
        paid = pay(server, amountToSend="12345")

    assert paid["ok"], paid
    assert server.booked == [12345]
    assert paid["amountDelivered"] == "12345"
    assert paid["destinationAsset"] == {"code": ASSET.code, "scale": ASSET.scale}


def test_credentials_come_from_the_spsp_answer() -> None:
    with stream_server() as server:
        request = {"url": server.url, "token": TOKEN, "spspUrl": server.url, "amountToSend": "7"}
        paid = run("pay.mjs", request)

    assert paid["ok"], paid
    assert server.booked == [7]


def test_packets_stay_below_the_maximum_and_add_up() -> None:
    with stream_server(Limits(packet_amount=100)) as server:
        paid = pay(server, amountToSend="2550")

    assert paid["ok"], paid
    assert paid["codes"]["F08"] >= 1
    assert max(server.booked) <= 100 and sum(server.booked) == 2550


def test_exact_amount_is_delivered() -> None:
    with stream_server(Limits(packet_amount=1000), lambda amount: amount * 99 // 100) as server:
        paid = pay(server, amountToDeliver="9900", slippage=0.05)

    assert paid["ok"], paid
    assert sum(server.booked) == int(paid["amountDelivered"]) == 9900


def test_payment_below_the_sender_s_minimum_books_nothing() -> None:
    with stream_server(arriving=lambda amount: amount // 2) as server:
        refused = pay(server, amountToSend="1000", slippage=0.1)

    assert refused["error"] == "InsufficientExchangeRate"
    assert server.booked == []


def test_packet_that_arrives_below_its_minimum_is_refused_by_the_receiver() -> None:
    # The rate that the sender probed does not hold for the payment itself.
    with stream_server(arriving=lambda amount: 1100 if amount == 1234 else amount) as server:
        refused = pay(server, amountToSend="1234", slippage=0.01)

    assert refused["error"] == "InsufficientExchangeRate"
    assert refused["amountDelivered"] == "0" and "fulfill" not in refused["codes"]
    assert server.booked == []
