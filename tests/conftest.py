"""What holds for every test, wherever the suite is started from."""

import signal
import threading
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from moto.core.botocore_stubber import BotocoreStubber

# A suite that a shell runs in the background ignores SIGINT, and so would every command that it
# starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# An example may take long on a busy machine. That says nothing about the code.
settings.register_profile(
    "farthing", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("farthing")


@pytest.fixture(autouse=True, scope="session")
def moto_one_by_one() -> Any:
    """moto copies tables without a lock, which breaks when another thread writes meanwhile."""
    lock, process = threading.RLock(), BotocoreStubber.process_request

    def one_by_one(self: BotocoreStubber, request: Any) -> Any:
        with lock:
            return process(self, request)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BotocoreStubber, "process_request", one_by_one)
        yield
