"""How a section declares a setting."""

from collections.abc import Callable
from dataclasses import field
from typing import Any


def setting(
    default: Any,
    about: str,
    check: Callable[[Any], None] | None = None,
    *,
    read: Callable[[str], Any] | None = None,
    secret: bool = False,
) -> Any:
    """A setting. `check` refuses values of the right type; an empty text is never checked, unless
    the default is not empty. `read` replaces the reader of the type."""
    metadata = {"about": about, "check": check, "read": read}
    if callable(default):
        return field(default_factory=default, metadata=metadata, repr=not secret)
    return field(default=default, metadata=metadata, repr=not secret)
