"""The example settings file names settings that there are, with values that they take."""

import tomllib
from dataclasses import fields

from farthing.settings import Settings
from tests.e2e.relay_process import ROOT

EXAMPLE = tomllib.loads((ROOT / "deploy/farthing.toml").read_text())
SECRETS = {setting.name for setting in fields(Settings) if not setting.repr}


def test_every_name_is_a_setting_and_none_is_a_secret() -> None:
    assert EXAMPLE.keys() <= {setting.name for setting in fields(Settings)}
    assert SECRETS
    assert not EXAMPLE.keys() & SECRETS


def test_the_values_make_settings() -> None:
    listed = {name: frozenset(value) for name, value in EXAMPLE.items() if type(value) is list}
    settings = Settings(**(EXAMPLE | listed))
    assert settings.tariff.price(0, 1000) == 5000
    assert settings.tariff.price(1, 1000) == 10_000


def test_the_types_are_those_of_the_defaults() -> None:
    for name, value in EXAMPLE.items():
        default = getattr(Settings(), name)
        assert type(default) is (frozenset if type(value) is list else type(value)), name
