"""The settings file: TOML, named by FARTHING_CONFIG, read as if its values were in the environment.

A variable of the environment wins over the file. `Settings` checks and converts the values.
"""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path

from farthing.settings import PREFIX, InvalidSetting, declared, nearest

VARIABLE = f"{PREFIX}CONFIG"


def with_settings_file(environment: Mapping[str, str]) -> Mapping[str, str]:
    """The environment, plus the values of the settings file for variables that it lacks."""
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
    if unknown:  # a misspelt limit must not be ignored
        raise InvalidSetting(
            f"{VARIABLE}: there is no setting {unknown[0]!r} in {path}{nearest(unknown[0], known)}"
        )
    return {PREFIX + name.upper(): _text(name, value) for name, value in values.items()}


def _text(name: str, value: object) -> str:
    """The value, written as in an environment variable."""
    match value:
        case bool():
            return str(int(value))
        case int() | str():
            return str(value)
        case list() if all(type(each) is str for each in value):
            return ",".join(value)
        case dict():
            return json.dumps(value)
    raise InvalidSetting(
        f"{VARIABLE}: {name}: expected a boolean, whole number, text, list of texts or table,"
        f" got {type(value).__name__}"
    )
