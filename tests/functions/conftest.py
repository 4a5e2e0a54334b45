"""Handlers as Lambda calls them, over moto's DynamoDB, with the payloads that AWS sends."""

import json
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from moto import mock_aws

from farthing.context import Agent
from farthing.handlers import runtime
from tests.relay.world import Clock, MotoTables, aws_credentials, make_agent

SAMPLES = Path(__file__).parents[2] / "events"

Invoke = Callable[..., dict[str, Any]]


@pytest.fixture(scope="package")
def moto_tables() -> Iterator[MotoTables]:
    with aws_credentials(), mock_aws():
        tables = MotoTables()
        yield tables
        tables.close()


@pytest.fixture
def agent(moto_tables: MotoTables) -> Iterator[Agent]:
    """The agent that handlers find."""
    clock = Clock()
    agent = make_agent(moto_tables.empty(clock), clock)
    runtime.install(agent)
    yield agent
    runtime.install(None)


def sample(name: str) -> dict[str, Any]:
    return json.loads((SAMPLES / f"{name}.json").read_text())


@pytest.fixture
def invoke(agent: Agent) -> Invoke:
    """Call a handler with its sample payload, or with another one."""

    def call(name: str, event: dict[str, Any] | None = None) -> dict[str, Any]:
        handler = import_module(f"functions.{name}.handler").handler
        response = handler(sample(name) if event is None else event, None)
        return json.loads(json.dumps(response))  # what Lambda can send back

    return call
