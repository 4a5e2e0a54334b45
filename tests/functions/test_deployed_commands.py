"""`farthing --cloud`: an operator's commands on the tables that the deployed handlers use."""

from collections.abc import Mapping

import pytest

from farthing.connector.known_peers import known_peers
from farthing.context import Agent
from farthing.settings import Settings
from infra.local import cli
from infra.local.commands.deployed import NotDeployed, deployed_settings
from tests.relay.world import MotoTables

SECRET = "7" * 64
VARIABLES = {
    "FARTHING_SECRET_KEY_ARN": "arn:key",
    "FARTHING_ASSET_CODE": "EUR",
    "FARTHING_CONNECTIONS_URL": "https://not-a-setting.example",
}


def found(environment: Mapping[str, str], asked: list[str], **more: str) -> Settings:
    def environment_of(name: str) -> Mapping[str, str]:
        asked.append(name)
        return VARIABLES | more

    return deployed_settings(environment, environment_of, {"arn:key": SECRET}.__getitem__)


def test_settings_are_those_of_the_functions_and_the_key_that_of_the_secret() -> None:
    asked: list[str] = []
    settings = found({"FARTHING_TABLE_PREFIX": "mine-", "FARTHING_ASSET_CODE": "USD"}, asked)
    assert asked == ["mine-ilp"]
    assert (settings.asset_code, settings.secret_key) == ("EUR", SECRET)
    assert settings.deployed
    assert not Settings().deployed
    found({}, asked)
    assert asked[1] == "farthing-ilp"


@pytest.fixture
def deployed(agent: Agent, moto_tables: MotoTables, monkeypatch: pytest.MonkeyPatch) -> Agent:
    settings = found({}, [], FARTHING_TABLE_PREFIX=moto_tables.prefix)
    monkeypatch.setattr("infra.local.commands.deployed.deployed_settings", lambda _: settings)
    return agent


def test_a_peer_added_from_outside_is_known_inside(
    deployed: Agent, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["--cloud", "peers", "add", "alice", "--max-balance", "500"]) == 0
    token = capsys.readouterr().out.split("token")[1].split()[0]
    peer = deployed.ledger.peer("alice")
    assert peer is not None
    assert (peer.max_balance, peer.asset_code) == (500, "EUR")
    known = known_peers(deployed).by_token(token)
    assert known is not None
    assert known.id == "alice"


def test_commands_on_files_refuse(deployed: Agent, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--cloud", "export"]) == 2
    assert "data folder only" in capsys.readouterr().err


def test_a_command_without_a_deployment_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def nothing(_: object) -> None:
        raise NotDeployed("cannot read the settings of farthing-ilp: no such function")

    monkeypatch.setattr("infra.local.commands.deployed.deployed_settings", nothing)
    assert cli.main(["--cloud", "peers", "list"]) == 2
    assert "no such function" in capsys.readouterr().err
