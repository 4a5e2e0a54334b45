"""The owner's key on one machine: from the settings, or made once and kept in the data folder."""

import os
import secrets
from dataclasses import replace
from pathlib import Path

from farthing.settings import Settings

_KEY_FILE = "secret-key"


def with_identity(settings: Settings) -> Settings:
    if settings.secret_key:
        return settings
    return replace(settings, secret_key=_kept_key(Path(settings.data) / _KEY_FILE))


def _kept_key(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        # Made readable to nobody else from the start, and by one of two concurrent starts only.
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_text().strip()
    with os.fdopen(handle, "w") as file:
        file.write(secrets.token_hex(32) + "\n")
        file.flush()
        os.fsync(file.fileno())
    return path.read_text().strip()
