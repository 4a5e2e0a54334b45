"""The same relays and engines as for the connector."""

from tests.ilp.conftest import (  # noqa: F401
    agent,
    agent_with,
    clock,
    either,
    engine,
    moto_ledger,
    sqlite,
)
