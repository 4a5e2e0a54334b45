"""A relay with a price, and pay.js beside it."""

from collections.abc import Iterator

import pytest

from tests.e2e.authors import Author
from tests.e2e.paying import PER_BYTE, free_port
from tests.e2e.relay_process import RelayProcess
from tests.paying.pay_js import PayJs, node


@pytest.fixture(scope="module")
def pay_js() -> Iterator[PayJs]:
    if node() is None:
        pytest.skip("node is not installed")
    running = PayJs()
    yield running
    running.close()


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayProcess]:
    data = tmp_path_factory.mktemp("paid") / "data"
    relay = RelayProcess(data, port=free_port(), price_per_byte=PER_BYTE).start()
    yield relay
    assert relay.stop() == 0
    relay.check_log()


@pytest.fixture
def author() -> Author:
    return Author()
