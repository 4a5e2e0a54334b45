"""An agent over each engine, with a clock and clients that the tests hold in their hands."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from moto import mock_aws

from farthing.context import Agent
from farthing.store.sqlite import SqliteEngine
from farthing.store.table import Engine
from tests.relay.world import Client, Clock, MotoTables, aws_credentials, make_agent


@pytest.fixture(scope="package")
def moto_tables() -> Iterator[MotoTables]:
    with aws_credentials(), mock_aws():
        tables = MotoTables()
        yield tables
        tables.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sqlite(tmp_path: Path, clock: Clock) -> Iterator[SqliteEngine]:
    engine = SqliteEngine(tmp_path, clock=clock)
    yield engine
    engine.close()


@pytest.fixture(params=["sqlite", "moto"])
def engine(request: pytest.FixtureRequest, clock: Clock) -> Iterator[Engine]:
    if request.param == "sqlite":
        yield request.getfixturevalue("sqlite")
    else:
        tables: MotoTables = request.getfixturevalue("moto_tables")
        yield tables.empty(clock)


@pytest.fixture
def agent(engine: Engine, clock: Clock) -> Agent:
    """A relay where writing is free."""
    return make_agent(engine, clock)


@pytest.fixture
def client(agent: Agent) -> Client:
    return Client(agent)


@pytest.fixture
def agent_with(sqlite: SqliteEngine, clock: Clock) -> Callable[..., Agent]:
    """Agents with settings of their own, on SQLite."""
    return lambda **settings: make_agent(sqlite, clock, **settings)
