"""Servers and clients for the end-to-end tests."""

from collections.abc import Callable, Iterator

import pytest

from tests.e2e.authors import Author
from tests.e2e.client import Background, RawClient
from tests.e2e.relay_process import RelayProcess

# Anyone may write, as fast as they like: what a test wants otherwise it says.
OPEN = {"price_per_byte": 0, "requests_per_second": 0}


@pytest.fixture(scope="session")
def background() -> Iterator[Background]:
    background = Background()
    yield background
    background.stop()


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayProcess]:
    """One open relay for all tests of a module; they keep apart by their authors."""
    relay = RelayProcess(tmp_path_factory.mktemp("relay") / "data", **OPEN).start()
    yield relay
    assert relay.stop() == 0
    relay.check_log()


@pytest.fixture
def start_relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., RelayProcess]]:
    """Start relays of the test's own; they end with it, and their logs must be clean."""
    started: list[RelayProcess] = []

    def start(data: str = "data", **settings: object) -> RelayProcess:
        folder = started[0].data.parent if started else tmp_path_factory.mktemp("relay")
        relay = RelayProcess(folder / data, **settings)
        started.append(relay)
        return relay.start()

    yield start
    for relay in started:
        relay.kill()
    for relay in started:
        relay.check_log()


@pytest.fixture
def connect(
    background: Background, request: pytest.FixtureRequest
) -> Iterator[Callable[..., RawClient]]:
    """Connections, to the module's relay unless another is named; closed after the test."""
    clients: list[RawClient] = []

    def open_one(relay: RelayProcess | None = None) -> RawClient:
        target = relay or request.getfixturevalue("relay")
        clients.append(RawClient(background, target.url))
        return clients[-1]

    yield open_one
    for client in clients:
        client.close()


@pytest.fixture
def client(connect: Callable[..., RawClient]) -> RawClient:
    return connect()


@pytest.fixture
def author() -> Author:
    """Someone whom no other test knows."""
    return Author()
