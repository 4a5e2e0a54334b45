"""A purse is never below zero, moves as a whole, and adds up."""

import threading
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farthing.agent.audit import audit
from farthing.agent.upkeep import lapse_purses
from farthing.context import Agent
from farthing.nostr.events import public_key_of
from farthing.store.memory import MemoryEngine
from farthing.store.purses import Movement, MovementKind, Purse, Purses, Way
from farthing.store.settlements import KeyUsedDifferently
from farthing.store.table import Add, StoreError, Table, TransactionCancelled
from tests.relay.world import ALICE, BOB, START, Clock
from tests.store.faulty import Fault, FaultyEngine, at

KEY, OTHER = public_key_of(ALICE), public_key_of(BOB)
NOW = START * 1000


def drawn(amount: int, mark: str = "x", time_ms: int = NOW) -> Movement:
    return Movement(MovementKind.DRAWN, Way.OPERATOR, amount, time_ms, mark)


def filled(amount: int, mark: str = "x", time_ms: int = NOW) -> Movement:
    return Movement(MovementKind.FILLED, Way.OPERATOR, amount, time_ms, mark)


def fill(agent: Agent, movement: Movement, key: str = KEY) -> None:
    agent.engine.transact(agent.purses.fill(agent.purses.get(key), movement))


def draw(agent: Agent, movement: Movement, key: str = KEY) -> bool:
    try:
        agent.engine.transact(agent.purses.draw(key, movement).writes)
    except TransactionCancelled:
        return False
    return True


def numbers(purse: Purse) -> tuple[int, int, int, int]:
    return purse.left, purse.filled, purse.granted, purse.drawn


class TestMovements:
    def test_what_comes_in_can_be_drawn_to_the_last_unit_and_no_further(
        self, either: Agent
    ) -> None:
        fill(either, filled(7))
        assert either.purses.grant(KEY, 3, NOW, "gift")

        assert not draw(either, drawn(11))
        assert draw(either, drawn(10))
        assert not draw(either, drawn(1, "y"))

        assert numbers(either.purses.get(KEY)) == (0, 7, 3, 10)
        assert audit(either).differences == []

    def test_a_purse_that_nobody_filled_pays_for_nothing(self, either: Agent) -> None:
        assert not draw(either, drawn(1))

        assert either.purses.get(KEY) == Purse(KEY)
        assert list(either.purses.all()) == []

    def test_the_last_movements_come_newest_first(self, either: Agent) -> None:
        for number in range(5):
            fill(either, filled(number + 1, time_ms=NOW + number))

        last = either.purses.last_movements(KEY, 3)

        assert [each.amount for each in last] == [5, 4, 3]
        assert [each.amount for each in either.purses.movements(KEY)] == [1, 2, 3, 4, 5]

    def test_purses_are_listed_each_once(self, either: Agent) -> None:
        for key in (KEY, OTHER, KEY):
            either.purses.grant(key, 1, NOW, f"{key}{either.purses.get(key).moves}")

        assert sorted(purse.key for purse in either.purses.all()) == sorted([KEY, OTHER])

    @pytest.mark.parametrize("amount", [0, -1])
    def test_nothing_moves_by_an_amount_that_is_not_positive(
        self, agent: Agent, amount: int
    ) -> None:
        with pytest.raises(ValueError, match="positive"):
            agent.purses.fill(Purse(KEY), filled(amount))
        with pytest.raises(ValueError, match="positive"):
            agent.purses.draw(KEY, drawn(amount))


class TestCredits:
    def test_are_counted_once_by_their_key(self, either: Agent) -> None:
        assert either.purses.credit(KEY, "invoice-1", 40, NOW) is True
        assert either.purses.credit(KEY, "invoice-1", 40, NOW + 5) is False
        assert either.purses.credit(KEY, "invoice-2", 2, NOW) is True

        assert numbers(either.purses.get(KEY)) == (42, 42, 0, 0)

    def test_a_key_stands_for_one_amount(self, either: Agent) -> None:
        either.purses.credit(KEY, "invoice", 40, NOW)

        with pytest.raises(KeyUsedDifferently):
            either.purses.credit(KEY, "invoice", 41, NOW)

        assert either.purses.get(KEY).left == 40


class TestFreezing:
    def test_a_frozen_purse_takes_nothing_and_pays_for_nothing(self, either: Agent) -> None:
        either.purses.grant(KEY, 10, NOW, "gift")

        frozen = either.purses.freeze(KEY)

        assert frozen.is_frozen
        assert (frozen.left, frozen.drawable) == (10, 0)
        assert not draw(either, drawn(1))
        assert not either.purses.grant(KEY, 1, NOW, "more")
        assert either.purses.credit(KEY, "invoice", 1, NOW) is None
        with pytest.raises(TransactionCancelled):
            fill(either, filled(1))
        assert audit(either).differences == []

    def test_thawed_it_is_as_before(self, either: Agent) -> None:
        either.purses.grant(KEY, 10, NOW, "gift")
        either.purses.freeze(KEY)
        either.purses.freeze(KEY)

        thawed = either.purses.freeze(KEY, frozen=False)

        assert (thawed.left, thawed.is_frozen) == (10, False)
        assert draw(either, drawn(10))

    def test_a_purse_can_be_frozen_before_it_is_filled(self, either: Agent) -> None:
        either.purses.freeze(KEY)

        assert not either.purses.grant(KEY, 1, NOW, "gift")
        assert [purse.key for purse in either.purses.all()] == [KEY]


class TestLapsing:
    def test_money_stays_unless_the_operator_says_otherwise(
        self, agent: Agent, clock: Clock
    ) -> None:
        agent.purses.grant(KEY, 10, NOW, "gift")
        clock.now += 10**9

        lapse_purses(agent)

        assert agent.purses.get(KEY).left == 10

    def test_idle_purses_lapse_and_the_books_still_add_up(
        self, agent_with: Callable[..., Agent], clock: Clock
    ) -> None:
        agent = agent_with(purse_idle_days=30)
        agent.purses.grant(KEY, 10, NOW, "gift")
        agent.purses.grant(OTHER, 10, NOW, "gift")
        clock.now += 20 * 86400
        assert draw(agent, drawn(1, time_ms=agent.now_ms), OTHER)
        clock.now += 11 * 86400

        assert lapse_purses(agent) == "1 purses lapsed"
        assert lapse_purses(agent) == "0 purses lapsed"

        assert numbers(agent.purses.get(KEY)) == (0, 0, 10, 10)
        assert agent.purses.get(OTHER).left == 9
        assert agent.purses.last_movements(KEY, 1)[0].kind is MovementKind.LAPSED
        assert audit(agent).differences == []

    def test_a_purse_that_moves_meanwhile_does_not_lapse(self, agent: Agent) -> None:
        agent.purses.grant(KEY, 10, NOW, "gift")
        seen = agent.purses.get(KEY)
        draw(agent, drawn(4))

        assert not agent.purses.lapse(seen, NOW + 1)

        assert agent.purses.get(KEY).left == 6


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["fill", "grant", "draw", "credit", "freeze", "thaw"]),
        st.integers(1, 30),
    ),
    max_size=25,
)


@settings(max_examples=40)
@given(STEPS)
def test_a_purse_does_what_a_naive_one_does(steps: list[tuple[str, int]]) -> None:
    engine = MemoryEngine()
    purses = Purses(engine)
    left, frozen, sums = 0, False, {"filled": 0, "granted": 0, "drawn": 0}
    for number, (step, amount) in enumerate(steps):
        mark, counter, sign = str(number), "filled", 1
        match step:
            case "freeze" | "thaw":
                frozen = step == "freeze"
                purses.freeze(KEY, frozen=frozen)
                continue
            case "fill":
                done = _try(engine, purses.fill(purses.get(KEY), filled(amount, mark)))
            case "grant":
                done, counter = purses.grant(KEY, amount, NOW, mark), "granted"
            case "credit":
                done = bool(purses.credit(KEY, mark, amount, NOW))
            case _:
                done, counter = _try(engine, purses.draw(KEY, drawn(amount, mark)).writes), "drawn"
                sign = -1
        assert done is (not frozen and (sign > 0 or amount <= left))
        if done:
            left += sign * amount
            sums[counter] += amount

    purse = purses.get(KEY)
    assert numbers(purse) == (left, sums["filled"], sums["granted"], sums["drawn"])
    assert purse.left == purse.filled + purse.granted - purse.drawn >= 0


def _try(engine: MemoryEngine, writes: object) -> bool:
    try:
        engine.transact(writes)  # type: ignore[arg-type]
    except TransactionCancelled:
        return False
    return True


def test_of_many_who_draw_at_once_only_as_many_succeed_as_there_is_money_for(agent: Agent) -> None:
    agent.purses.grant(KEY, 5, NOW, "gift")
    results = []

    def take(number: int) -> None:
        results.append(draw(agent, drawn(1, str(number))))

    threads = [threading.Thread(target=take, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sum(results) == 5
    assert numbers(agent.purses.get(KEY)) == (0, 0, 5, 5)
    assert audit(agent).differences == []


@pytest.mark.parametrize("after", [False, True])
def test_a_fault_at_any_operation_leaves_a_purse_that_adds_up(either: Agent, after: bool) -> None:
    faulty = FaultyEngine(either.engine)
    purses = Purses(faulty)
    for number in range(6):
        faulty.operations.clear()
        faulty.plan = at(number, Fault(after=after))
        mark = str(number)
        with suppress(StoreError):
            purses.credit(KEY, mark, 5, NOW)
        with suppress(StoreError):
            purses.grant(KEY, 5, NOW, mark)
        with suppress(StoreError):
            faulty.transact(purses.draw(KEY, drawn(1, mark)).writes)

    assert audit(either).differences == []


@pytest.mark.parametrize("name", ["left", "filled", "granted", "drawn"])
def test_the_audit_sees_a_number_that_was_tampered_with(agent: Agent, name: str) -> None:
    agent.purses.grant(KEY, 5, NOW, "gift")
    agent.engine.write(Add(Table.LEDGER, f"purse#{KEY}", "purse", {name: 1}))

    assert audit(agent).differences
