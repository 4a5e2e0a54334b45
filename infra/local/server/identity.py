"""Secrets on one machine: from the settings, or created once and kept in the data folder."""

import os
import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from farthing.settings import InvalidSetting, Settings
from farthing.store.private_files import close_file, private_folder

_KEY_FILE = "secret-key"


def with_identity(settings: Settings) -> Settings:
    """The settings with the owner's key in them."""
    if settings.secret_key:
        return settings
    path = Path(settings.data) / _KEY_FILE
    key = kept_secret(path, lambda: secrets.token_hex(32))
    try:
        return replace(settings, secret_key=key)
    except InvalidSetting:
        raise InvalidSetting(f"expected a key in {path}: restore the file or remove it") from None


def kept_secret(path: Path, make: Callable[[], str]) -> str:
    """The secret in a file that only its owner can read. Creates a missing file."""
    if not path.exists():
        _keep(path, make())
    close_file(path)
    secret = path.read_bytes().decode(errors="replace").strip()
    if not secret:
        raise InvalidSetting(
            f"expected a secret in {path}, got nothing: restore the file or remove it"
        )
    return secret


def _keep(path: Path, secret: str) -> None:
    private_folder(path.parent)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    # Readable to nobody else from the start.
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(secret + "\n")
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(draft, path)  # atomic: of two concurrent starts, only one creates the file
    except FileExistsError:
        pass
    finally:
        draft.unlink()
