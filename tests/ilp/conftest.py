"""A relay with its price over each engine."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from moto import mock_aws

from farthing.context import Agent
from farthing.store.sqlite import SqliteEngine
from farthing.store.table import Engine
from tests.ilp.paying import MotoLedger, engine_of, paid_agent
from tests.relay.world import Clock, aws_credentials


@pytest.fixture(scope="session")
def moto_ledger() -> Iterator[MotoLedger]:
    with aws_credentials(), mock_aws():
        moto = MotoLedger()
        yield moto
        moto.engine.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sqlite(tmp_path: Path, clock: Clock) -> Iterator[SqliteEngine]:
    engine = SqliteEngine(tmp_path, clock=clock)
    yield engine
    engine.close()


@pytest.fixture(params=["sqlite", "moto"])
def engine(request: pytest.FixtureRequest, clock: Clock) -> Engine:
    return engine_of(request, clock)


@pytest.fixture
def agent(sqlite: SqliteEngine, clock: Clock) -> Agent:
    """On SQLite, for what does not depend on the engine."""
    return paid_agent(sqlite, clock)


@pytest.fixture
def agent_with(sqlite: SqliteEngine, clock: Clock) -> Callable[..., Agent]:
    return lambda **settings: paid_agent(sqlite, clock, **settings)


@pytest.fixture
def either(engine: Engine, clock: Clock) -> Agent:
    """On each engine in turn."""
    return paid_agent(engine, clock)
