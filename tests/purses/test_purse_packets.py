"""Packets into a purse: booked once, to the last unit, or refused by the code that says why."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from farthing.agent.audit import audit
from farthing.context import Agent
from farthing.ilp.ildcp import CONDITION
from farthing.ilp.packet import Fulfill, Prepare, Reject
from farthing.ilp.stream_frames import ConnectionAssetDetails, ConnectionClose, StreamMaxMoney
from farthing.store.purses import MovementKind, Way
from farthing.store.receipts import PurseFilled
from farthing.store.table import Engine, StoreError
from tests.ilp.paying import PAYER, assert_fulfilled, code_of, dump, posted, send
from tests.purses.filling import (
    DATA,
    KEY,
    OTHER,
    connection,
    fill_packet,
    opened,
    quoted,
    stream_packet,
)
from tests.store.faulty import Fault, FaultyEngine, at


def left(agent: Agent, key: str = KEY) -> int:
    return agent.purses.get(key).left


class TestPlainPackets:
    def test_fill_the_purse_with_a_receipt_and_a_movement(self, either: Agent) -> None:
        prepare = fill_packet(either, 1000)

        assert_fulfilled(send(either, prepare), prepare)

        purse = either.purses.get(KEY)
        assert (purse.left, purse.filled, purse.granted, purse.drawn) == (1000, 1000, 0, 0)
        assert posted(either) == 1000
        (receipt,) = either.ledger.receipts(PAYER.id)
        assert receipt.purpose == PurseFilled(KEY, len(DATA))
        assert (receipt.amount, receipt.price, receipt.scheme) == (1000, 0, "author")
        (movement,) = either.purses.movements(KEY)
        assert (movement.kind, movement.way, movement.amount) == (
            MovementKind.FILLED, Way.PACKET, 1000,
        )  # fmt: skip
        assert audit(either).differences == []

    def test_a_quoted_condition_is_as_good(self, either: Agent) -> None:
        prepare = fill_packet(either, 7, condition=quoted(either))

        assert_fulfilled(send(either, prepare), prepare)

        assert left(either) == 7

    def test_a_repeat_books_nothing(self, either: Agent) -> None:
        prepare = fill_packet(either, 1000)
        send(either, prepare)

        assert_fulfilled(send(either, prepare), prepare)

        assert (left(either), posted(either)) == (1000, 1000)
        assert audit(either).differences == []

    @pytest.mark.parametrize("amount", [999, 1001])
    def test_another_amount_under_the_same_data_is_not_taken(
        self, either: Agent, amount: int
    ) -> None:
        """Fulfilled as a repeat, it would be paid and never booked."""
        first = fill_packet(either, 1000)
        send(either, first)

        assert code_of(send(either, replace(first, amount=amount))) == "F99"

        assert_fulfilled(send(either, first), first)
        assert (left(either), posted(either)) == (1000, 1000)

    def test_payments_of_other_data_add_up(self, agent: Agent) -> None:
        for number in range(3):
            send(agent, fill_packet(agent, 5, bytes([number]) * 16))

        assert left(agent) == 15

    @pytest.mark.parametrize(
        ("changes", "code"),
        [
            ({"amount": 0}, "F03"),
            ({"data": b"x" * 15}, "F06"),
            ({"data": b"x" * 1025}, "F06"),
            ({"data": b""}, "F06"),
            ({"condition": bytes(32)}, "F05"),
            ({"destination": "{own}.purse"}, "F02"),
            ({"destination": "{own}.purse." + "f" * 64}, "F02"),
            ({"destination": "{own}.purse." + "0" * 64}, "F02"),
            ({"destination": "{own}.purse." + KEY.upper()}, "F02"),
            ({"destination": "{own}.purse." + KEY[:63]}, "F02"),
            ({"destination": "{own}.purse." + KEY + ".x"}, "F02"),
            ({"destination": "{own}.purse." + KEY, "amount": 10**14}, "F08"),
        ],
        ids=str,
    )
    def test_are_refused_by_the_code_that_says_why(
        self, agent: Agent, changes: dict[str, object], code: str
    ) -> None:
        if "destination" in changes:
            own = agent.settings.own_ilp_address
            changes = {**changes, "destination": str(changes["destination"]).format(own=own)}
        before = dump(agent.engine)

        reply = send(agent, fill_packet(agent, **changes))  # type: ignore[arg-type]

        assert code_of(reply) == code
        assert dump(agent.engine) == before

    @pytest.mark.parametrize("size", [16, 1024])
    def test_data_may_have_any_length_between(self, agent: Agent, size: int) -> None:
        prepare = fill_packet(agent, 1, b"d" * size)

        assert_fulfilled(send(agent, prepare), prepare)

    def test_condition_of_another_purse_is_none_of_this_one(self, agent: Agent) -> None:
        prepare = fill_packet(agent, condition=quoted(agent, key=OTHER))

        assert code_of(send(agent, prepare)) == "F05"

    def test_a_frozen_purse_takes_nothing(self, either: Agent) -> None:
        first = fill_packet(either, 10)
        send(either, first)
        either.purses.freeze(KEY)

        refused = send(either, fill_packet(either, 5, b"x" * 16))

        assert code_of(refused) == "F99"
        assert isinstance(refused, Reject)
        assert "frozen" in refused.message
        assert_fulfilled(send(either, first), first)  # paid before
        assert (left(either), posted(either)) == (10, 10)

    def test_the_balance_limit_of_the_peer_holds(self, agent_with: Callable[..., Agent]) -> None:
        agent = agent_with(max_balance=1000)

        assert code_of(send(agent, fill_packet(agent, 1001))) == "T04"
        send(agent, fill_packet(agent, 600))
        assert code_of(send(agent, fill_packet(agent, 401, b"y" * 16))) == "T04"

        assert (left(agent), posted(agent)) == (600, 600)


class TestStreamPackets:
    def test_book_what_arrives_and_say_so(self, either: Agent) -> None:
        prepare = stream_packet(either, 250)

        reply = send(either, prepare)

        assert_fulfilled(reply, prepare)
        answer = opened(either, reply)
        assert (answer.sequence, answer.amount) == (1, 250)
        assert ConnectionAssetDetails("USD", 9) in answer.frames
        assert any(isinstance(frame, StreamMaxMoney) for frame in answer.frames)
        assert (left(either), posted(either)) == (250, 250)
        (movement,) = either.purses.movements(KEY)
        assert movement.way is Way.STREAM
        assert audit(either).differences == []

    def test_a_replayed_packet_books_once(self, either: Agent) -> None:
        prepare = stream_packet(either, 250)

        first, second = send(either, prepare), send(either, prepare)

        assert_fulfilled(second, prepare)
        assert opened(either, first) == opened(either, second)
        assert (left(either), posted(either)) == (250, 250)

    def test_a_replayed_packet_with_another_amount_is_answered_and_not_fulfilled(
        self, either: Agent
    ) -> None:
        prepare = stream_packet(either, 250)
        send(either, prepare)

        reply = send(either, replace(prepare, amount=300))

        assert code_of(reply) == "F99"
        assert opened(either, reply).amount == 300
        assert (left(either), posted(either)) == (250, 250)

    def test_of_several_in_one_millisecond_each_is_booked(self, either: Agent) -> None:
        for number in range(1, 6):
            assert isinstance(send(either, stream_packet(either, number, sequence=number)), Fulfill)

        assert left(either) == 15
        assert audit(either).differences == []

    @pytest.mark.parametrize("changes", [{"condition": bytes(32)}, {"minimum": 251}], ids=str)
    def test_probes_and_minima_not_met_are_answered_and_not_booked(
        self, agent: Agent, changes: dict[str, object]
    ) -> None:
        before = dump(agent.engine)

        reply = send(agent, stream_packet(agent, 250, **changes))  # type: ignore[arg-type]

        assert code_of(reply) == "F99"
        assert opened(agent, reply).amount == 250
        assert dump(agent.engine) == before

    def test_a_packet_without_an_amount_leaves_nothing(self, agent: Agent) -> None:
        before = dump(agent.engine)
        prepare = stream_packet(agent, 0)

        reply = send(agent, prepare)

        assert_fulfilled(reply, prepare)
        assert dump(agent.engine) == before

    def test_data_of_another_connection_is_refused(self, agent: Agent) -> None:
        other = connection(agent, token=bytes(16))
        prepare = stream_packet(
            agent, 5, to=other, destination=str(connection(agent).destination_account)
        )

        assert code_of(send(agent, prepare)) == "F06"
        assert left(agent) == 0

    def test_the_largest_packet_is_named(self, agent_with: Callable[..., Agent]) -> None:
        agent = agent_with(max_packet=100)

        reply = send(agent, stream_packet(agent, 250))

        assert code_of(reply) == "F08"
        assert reply.data == (250).to_bytes(8) + (100).to_bytes(8)

    def test_a_frozen_purse_closes_the_connection(self, agent: Agent) -> None:
        agent.purses.freeze(KEY)

        reply = send(agent, stream_packet(agent, 5))

        assert code_of(reply) == "F99"
        assert any(isinstance(frame, ConnectionClose) for frame in opened(agent, reply).frames)
        assert left(agent) == 0


@pytest.mark.parametrize("after", [False, True], ids=["refused", "answer lost"])
@pytest.mark.parametrize("make", [fill_packet, stream_packet])
def test_a_fault_at_any_operation_books_once_or_not_at_all(
    either: Agent, make: Callable[..., object], after: bool
) -> None:
    def packet(agent: Agent, number: int) -> Prepare:
        plain = make is fill_packet
        return fill_packet(agent, 10, number.to_bytes(16)) if plain else stream_packet(agent, 10)

    dry = FaultyEngine(either.engine)
    send(_over(either, dry), packet(either, 99))
    assert len(dry.operations) >= 4
    for number in range(len(dry.operations)):
        faulty = FaultyEngine(either.engine, at(number, Fault(StoreError, after=after)))
        agent = _over(either, faulty)
        prepare = packet(agent, number)

        first = send(agent, prepare)

        assert isinstance(first, Fulfill) or code_of(first) == "T00"
        assert_fulfilled(send(agent, prepare), prepare)
        booked = 20 + 10 * number
        assert (left(either), posted(either)) == (booked, booked)
    assert audit(either).differences == []


def _over(agent: Agent, engine: Engine) -> Agent:
    return Agent(agent.settings, engine, agent.connections, clock=agent.clock)


def test_a_client_asks_for_its_address_and_asset(agent: Agent) -> None:
    request = fill_packet(agent, 0, destination="peer.config", condition=CONDITION, data=b"")

    reply = send(agent, request)

    assert isinstance(reply, Fulfill)
    own = f"{agent.settings.own_ilp_address}.payer".encode()
    assert reply.data == bytes([len(own)]) + own + b"\x09\x03USD"
