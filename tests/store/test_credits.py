"""Credit limits are what the last rebuild said, on every engine, and nothing else."""

import pytest

from farthing.store.credits import CreditLimits
from farthing.store.routes import Route, RoutingTable
from farthing.store.table import Engine

ALICE, BOB = "a" * 64, "b" * 64
NOW = 1_700_000_000


@pytest.fixture
def credits_(engine: Engine) -> CreditLimits:
    limits = CreditLimits(engine)
    limits.replace({})
    return limits


def test_nothing_is_known_of_strangers(credits_: CreditLimits) -> None:
    assert credits_.of(ALICE) is None
    assert credits_.all() == {}


def test_limits_are_replaced_as_a_whole(credits_: CreditLimits) -> None:
    credits_.replace({ALICE: 10**12, BOB: 0})
    assert (credits_.of(ALICE), credits_.of(BOB)) == (10**12, 0)

    credits_.replace({BOB: 7})

    assert credits_.of(ALICE) is None, "whom we follow no longer"
    assert credits_.all() == {BOB: 7}


def test_more_limits_than_fit_into_one_batch(credits_: CreditLimits) -> None:
    many = {f"{number:064x}": number for number in range(1100)}

    credits_.replace(many)
    assert credits_.all() == many

    credits_.replace({})
    assert credits_.all() == {}


def test_routes_and_limits_share_a_table_and_do_not_meet(
    credits_: CreditLimits, engine: Engine
) -> None:
    credits_.replace({ALICE: 5})
    table = RoutingTable(engine, clock=lambda: NOW)

    table.replace(
        "credit", [Route("g.agent.a", ALICE, ALICE, 0, 1)], NOW, shrink_percent=50, force=True
    )
    credits_.replace({BOB: 6})

    assert [route.prefix for route in table.routes("credit")] == ["g.agent.a"]
    assert credits_.all() == {BOB: 6}
