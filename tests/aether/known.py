"""The computed vectors in vectors.json, and the moment at which they are judged."""

import json
from pathlib import Path
from typing import Any, Final

VECTORS: Final[dict[str, Any]] = json.loads((Path(__file__).parent / "vectors.json").read_text())
KEYS: Final[dict[str, str]] = VECTORS["keys"]
NOW_NS: Final = 1_800_000_000 * 10**9
EVENTS: Final[dict[str, Any]] = {each["name"]: each for each in VECTORS["events"]}
BY_ID: Final[dict[str, Any]] = {
    each["event"]["event_id"]: each["event"] for each in VECTORS["events"]
}


def seed(name: str) -> bytes:
    return bytes.fromhex(KEYS[f"{name}_seed"])


def pubkey(name: str) -> str:
    return KEYS[f"{name}_pubkey"]
