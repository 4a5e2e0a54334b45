"""The settings file counts below the environment, and the example in `deploy` is a valid one."""

import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from farthing.settings import InvalidSetting, Settings
from infra.local.settings_file import with_settings_file
from tests.e2e.authors import Author
from tests.e2e.relay_process import ROOT, environment

EXAMPLE = ROOT / "infra/public/farthing.toml"
SECRETS = {setting.name for setting in fields(Settings) if not setting.repr}


def read(path: Path, **variables: str) -> Settings:
    return Settings.from_env(with_settings_file({"FARTHING_CONFIG": str(path), **variables}))


def written(folder: Path, text: str) -> Path:
    path = folder / "farthing.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_example_is_valid_and_names_no_secret() -> None:
    settings = read(EXAMPLE)

    assert settings.relay_url == "wss://relay.example.org"
    assert settings.tariff.price(0, 1000) == 5000
    assert settings.tariff.price(1, 1000) == 10_000
    assert SECRETS
    assert not any(getattr(settings, name) for name in SECRETS)


def test_every_type_of_setting_can_stand_in_the_file(tmp_path: Path) -> None:
    one, other = Author().pubkey, Author().pubkey
    path = written(
        tmp_path,
        f'name = "Ö"\nport = 1234\npeer_with_follows = true\nfree_pubkeys = ["{one}", "{other}"]\n'
        "[price_kinds]\n1 = 5",
    )

    settings = read(path)

    assert (settings.name, settings.port, settings.peer_with_follows) == ("Ö", 1234, True)
    assert settings.free_pubkeys == {one, other}
    assert settings.price_kinds == {"1": 5}


def test_a_variable_of_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, 'port = 1234\nname = "file"')
    settings = read(path, FARTHING_PORT="99")
    assert (settings.port, settings.name) == (99, "file")


def test_without_a_file_nothing_changes() -> None:
    assert with_settings_file({"FARTHING_PORT": "1"}) == {"FARTHING_PORT": "1"}
    assert Settings.from_env(with_settings_file({"FARTHING_CONFIG": ""})) == Settings()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("prot = 1", "'prot'"),
        ("PORT = 1", "'PORT'"),
        ("port = ", "expected TOML"),
        ("port = 1.5", "port"),
        ("port = 2026-01-01", "port"),
        ("port = -1", "FARTHING_PORT"),
        ('port = "x"', "FARTHING_PORT"),
        ("free_pubkeys = [1]", "free_pubkeys"),
        ('free_pubkeys = ["x"]', "FARTHING_FREE_PUBKEYS"),
    ],
)
def test_an_unusable_setting_is_named(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(InvalidSetting, match=named):
        read(written(tmp_path, text))


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidSetting, match="nowhere"):
        read(tmp_path / "nowhere.toml")


def test_bytes_that_are_no_text_are_told(tmp_path: Path) -> None:
    path = tmp_path / "farthing.toml"
    path.write_bytes(b"name = '\xff'")
    with pytest.raises(InvalidSetting, match="expected TOML"):
        read(path)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.text(st.characters(exclude_categories=["Cs"]), max_size=20).filter(bool))
def test_any_text_comes_through(tmp_path: Path, name: str) -> None:
    quoted = json.dumps(name, ensure_ascii=False).replace("\x7f", "\\u007f")
    assert read(written(tmp_path, f"name = {quoted}")).name == name


def test_commands_read_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "nonsense = 1")
    given_variables = environment(tmp_path / "data", {"config": path})
    done = subprocess.run(
        [sys.executable, "-m", "infra.local", "peers", "list"], cwd=ROOT, env=given_variables,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2
    assert "'nonsense'" in done.stderr
