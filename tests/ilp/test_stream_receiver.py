"""What the receiver answers to a Prepare: fulfilled, or refused with what the sender needs."""

from dataclasses import replace
from datetime import UTC, datetime
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farthing.ilp import packet
from farthing.ilp.condition import condition_of
from farthing.ilp.packet import Code, Fulfill, Prepare, Reject
from farthing.ilp.stream import StreamPacket, keys_of
from farthing.ilp.stream_frames import (
    ConnectionAssetDetails,
    ConnectionClose,
    ConnectionMaxData,
    ConnectionMaxStreamId,
    ConnectionNewAddress,
    ErrorCode,
    Frame,
    StreamData,
    StreamMaxData,
    StreamMaxMoney,
    StreamMoney,
    StreamMoneyBlocked,
)
from farthing.ilp.stream_receiver import Asset, Limits, StreamPayment, receive, shares
from tests.ilp.fuzz_stream import fuzz

SECRET = bytes(range(32))
KEYS = keys_of(SECRET)
ADDRESS = "g.farthing.test"
NO_LIMITS = Limits()
ASSET = Asset("USD", 9)
ASSET_FRAME = ConnectionAssetDetails("USD", 9)
U64_MAX = 2**64 - 1


def prepare(
    *frames: Frame, amount: int = 1000, minimum: int = 0, sequence: int = 7, ilp_type: int = 12
) -> Prepare:
    data = KEYS.seal(StreamPacket(sequence, ilp_type, minimum, frames), bytes(12))
    return Prepare(
        amount,
        datetime(2030, 1, 1, tzinfo=UTC),
        condition_of(KEYS.fulfil(data)),
        ADDRESS + ".purse",
        data,
    )


def decide(sent: Prepare, limits: Limits = NO_LIMITS) -> StreamPayment | Reject:
    return receive(sent, secret=SECRET, address=ADDRESS, asset=ASSET, limits=limits)


def pay(sent: Prepare) -> tuple[StreamPayment, StreamPacket]:
    payment = decide(sent)
    assert isinstance(payment, StreamPayment)
    return payment, KEYS.open(payment.fulfill().data)


def refuse(sent: Prepare, code: str = "F99") -> StreamPacket:
    reject = decide(sent)
    assert isinstance(reject, Reject)
    assert (reject.code, reject.triggered_by) == (code, ADDRESS)
    return KEYS.open(reject.data)


def test_payment_is_fulfilled_and_names_the_amount_received() -> None:
    sent = prepare(StreamMoney(1, 1), amount=1000, minimum=1000)

    payment, answer = pay(sent)

    assert payment.amount == 1000
    assert condition_of(payment.fulfill().fulfillment) == sent.condition
    assert answer == StreamPacket(7, 13, 1000, (StreamMaxMoney(1, U64_MAX, 1000),))


def test_packet_without_money_is_fulfilled() -> None:
    payment, answer = pay(prepare(amount=0))

    assert payment.amount == 0
    assert answer == StreamPacket(7, 13, 0)


def test_condition_of_somebody_else_is_refused_with_the_amount_received() -> None:
    probe = replace(prepare(StreamMoney(1, 1)), condition=bytes(32))

    assert refuse(probe) == StreamPacket(7, 14, 1000, (StreamMaxMoney(1, U64_MAX, 0),))


def test_minimum_above_what_arrived_is_refused() -> None:
    assert refuse(prepare(amount=999, minimum=1000)) == StreamPacket(7, 14, 999)


def test_connectors_cannot_tell_the_reasons_of_a_refusal_apart() -> None:
    refused = [
        decide(prepare(amount=999, minimum=1000)),
        decide(replace(prepare(), condition=bytes(32))),
        decide(prepare(ConnectionClose(1, "done"))),
    ]

    assert len({(each.code, each.message) for each in refused if isinstance(each, Reject)}) == 1


def test_closed_connection_is_closed_by_the_receiver_too() -> None:
    answer = refuse(prepare(ConnectionClose(ErrorCode.NO_ERROR, "done")))

    assert answer.frames == (ConnectionClose(ErrorCode.NO_ERROR, ""),)


@pytest.mark.parametrize("sequence", [0, 1])
def test_first_packet_is_told_asset_and_maxima(sequence: int) -> None:
    _, answer = pay(prepare(sequence=sequence))

    assert answer.frames == (ASSET_FRAME, ConnectionMaxData(0), ConnectionMaxStreamId(20))


@pytest.mark.parametrize("address", ["", "private.SEND_ONLY_CLIENT"])
def test_asset_is_told_once_asked(address: str) -> None:
    asked = replace(prepare(ConnectionNewAddress(address), amount=0), condition=bytes(32))

    assert ASSET_FRAME in refuse(asked).frames


def test_later_packets_are_told_nothing_that_they_did_not_ask() -> None:
    assert pay(prepare(sequence=2))[1].frames == ()


def test_maximum_of_a_stream_is_told_for_each_that_is_named() -> None:
    sent = prepare(StreamMoney(3, 1), StreamMoney(1, 2), StreamMoneyBlocked(5, 9, 9), amount=100)

    answer = KEYS.open(pay(sent)[0].fulfill().data)

    assert answer.frames == (
        StreamMaxMoney(1, U64_MAX, 67),
        StreamMaxMoney(3, U64_MAX, 33),
        StreamMaxMoney(5, U64_MAX, 0),
    )


def test_data_is_not_taken_and_the_sender_is_told() -> None:
    assert pay(prepare(StreamData(1, 0, b"hello")))[1].frames == (StreamMaxData(1, 0),)


def test_reply_stays_short_whatever_streams_are_named() -> None:
    sent = prepare(*(StreamMoney(each, 1) for each in range(4000)))

    assert len(pay(sent)[0].fulfill().data) < 1024


def test_data_that_does_not_decrypt_is_unexpected() -> None:
    sent = prepare()
    garbled = replace(sent, data=sent.data[:-1] + bytes([sent.data[-1] ^ 1]))

    for data in (b"", b"hello", garbled.data):
        reject = decide(replace(sent, data=data))
        assert isinstance(reject, Reject) and reject.code == Code.F06_UNEXPECTED_PAYMENT
        assert reject.data == b""


@pytest.mark.parametrize("ilp_type", [13, 14])
def test_stream_packet_of_a_reply_is_no_payment(ilp_type: int) -> None:
    reject = decide(prepare(ilp_type=ilp_type))

    assert isinstance(reject, Reject) and (reject.code, reject.data) == ("F00", b"")


def test_amount_above_the_maximum_names_both() -> None:
    reject = decide(prepare(amount=1001), Limits(packet_amount=1000))

    assert isinstance(reject, Reject) and reject.code == Code.F08_AMOUNT_TOO_LARGE
    assert reject.data == (1001).to_bytes(8, "big") + (1000).to_bytes(8, "big")
    assert isinstance(decide(prepare(amount=1000), Limits(packet_amount=1000)), StreamPayment)


def test_declined_payment_closes_the_connection() -> None:
    payment = decide(prepare())
    assert isinstance(payment, StreamPayment)

    reject = payment.decline("the purse is frozen")

    closed = ConnectionClose(ErrorCode.APPLICATION_ERROR, "the purse is frozen")
    assert reject.code == Code.F99_APPLICATION_ERROR
    assert KEYS.open(reject.data) == StreamPacket(7, 14, 1000, (closed,))


def test_postponed_payment_may_be_sent_again() -> None:
    payment = decide(prepare())
    assert isinstance(payment, StreamPayment)

    reject = payment.postpone(Code.T04_INSUFFICIENT_LIQUIDITY, "balance limit")

    assert reject.code == "T04" and KEYS.open(reject.data) == StreamPacket(7, 14, 1000)


def test_each_reply_has_a_nonce_of_its_own() -> None:
    drawn = count(1)
    payment = receive(
        prepare(),
        secret=SECRET,
        address=ADDRESS,
        asset=ASSET,
        random_octets=lambda size: next(drawn).to_bytes(size, "big"),
    )
    assert isinstance(payment, StreamPayment)

    nonces = [payment.fulfill().data[:12], payment.decline("no").data[:12]]

    assert nonces == [(1).to_bytes(12, "big"), (2).to_bytes(12, "big")]


def test_a_reply_is_a_valid_packet() -> None:
    payment = decide(prepare(StreamMoney(1, 1)))
    assert isinstance(payment, StreamPayment)
    reply = payment.fulfill()

    assert isinstance(reply, Fulfill) and packet.decode(packet.encode(reply)) == reply


MONEY = st.lists(st.builds(StreamMoney, st.integers(1, 9), st.integers(0, 1000)), max_size=5)


@given(st.integers(0, U64_MAX), MONEY)
def test_streams_get_the_whole_amount_or_nothing_names_them(
    amount: int, frames: list[StreamMoney]
) -> None:
    divided = shares(amount, frames)

    assert sum(divided.values()) == (amount if any(frame.shares for frame in frames) else 0)
    assert set(divided) == {frame.stream_id for frame in frames if frame.shares}


def test_example_of_the_rfc_is_divided_as_it_says() -> None:
    frames = [StreamMoney(2, 5), StreamMoney(4, 15), StreamMoney(6, 30)]

    assert shares(100, frames) == {2: 10, 4: 30, 6: 60}


def test_mutated_packets_get_well_formed_replies() -> None:
    outcomes = fuzz(3000)

    assert outcomes["Fulfill"] > 200 and sum(outcomes.values()) == 3000
