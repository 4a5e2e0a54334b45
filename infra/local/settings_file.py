"""The settings file: TOML, named by FARTHING_CONFIG, read as if its values were in the environment.

A variable of the environment wins over the file. What a value means is left to `Settings`.
"""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path

from farthing.settings import PREFIX, InvalidSetting, declared, nearest

VARIABLE = f"{PREFIX}CONFIG"


def with_settings_file(environment: Mapping[str, str]) -> Mapping[str, str]:
    """The environment, and below it what the file says, if one is named."""
    path = environment.get(VARIABLE, "")
    return {**_read(Path(path)), **environment} if path else environment


def _read(path: Path) -> dict[str, str]:
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidSetting(f"{VARIABLE}: cannot read {path}: {error.strerror}") from None
    except ValueError as error:  # no TOML, or no UTF-8
        raise InvalidSetting(f"{VARIABLE}: expected TOML in {path}: {error}") from None
    known = {setting.name for setting in declared()}
    unknown = sorted(values.keys() - known)
    if unknown:  # a misspelt limit must not go unnoticed
        raise InvalidSetting(
            f"{VARIABLE}: {unknown[0]!r} in {path} is no setting{nearest(unknown[0], known)}"
        )
    return {PREFIX + name.upper(): _text(name, value) for name, value in values.items()}


def _text(name: str, value: object) -> str:
    """The value as a variable of the environment has it."""
    match value:
        case bool():
            return str(int(value))
        case int() | str():
            return str(value)
        case list() if all(type(each) is str for each in value):
            return ",".join(value)
        case dict():
            return json.dumps(value)
    raise InvalidSetting(f"{VARIABLE}: {name} is of a type that no setting has")
