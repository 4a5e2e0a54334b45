"""Worlds of agents as their events, small enough to write down."""

import json
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from glue_jobs.rules import Options

NOW = 1_800_000_000
Event = dict[str, Any]


def key(name: str) -> str:
    """A key for a name; not one of a curve, as nothing here looks at signatures."""
    return sha256(name.encode()).hexdigest()


def event(pubkey: str, kind: int, tags: Sequence[Sequence[Any]], *, content: str = "",
          created_at: int = NOW - 60) -> Event:  # fmt: skip
    body = json.dumps([pubkey, kind, created_at, list(tags), content])
    return {
        "id": sha256(body.encode()).hexdigest(),
        "pubkey": pubkey,
        "created_at": created_at,
        "kind": kind,
        "tags": [list(tag) for tag in tags],
        "content": content,
        "sig": "0" * 128,
    }


def follows(pubkey: str, followed: Iterable[str], **more: Any) -> Event:
    return event(pubkey, 3, [["p", each] for each in followed], **more)


def claim(pubkey: str, address: str, fee: object = None, **more: Any) -> Event:
    tags = [["ilp_address", address]]
    return event(pubkey, 10032, tags if fee is None else [*tags, ["fee", str(fee)]], **more)


def announces(pubkey: str, *routes: Sequence[object], **more: Any) -> Event:
    tags = [["route", *(str(part) for part in route)] for route in routes]
    return event(pubkey, 10033, tags, **more)


class World:
    """Agents by name, each with its own key and address in a name space of the world's."""

    def __init__(self, space: str) -> None:
        self.space = space
        self.events: list[Event] = []

    def key(self, name: str) -> str:
        return key(f"{self.space}/{name}")

    def address(self, name: str) -> str:
        return f"g.{self.space}.{name}"

    def agent(self, name: str, *followed: str, fee: object = None, address: str = "") -> str:
        """An agent with a claim and a follow list; its key."""
        pubkey = self.key(name)
        self.events.append(claim(pubkey, address or self.address(name), fee))
        self.events.append(follows(pubkey, [self.key(each) for each in followed]))
        return pubkey

    def claims_share(self, name: str, ppm: object) -> None:
        """A newer claim, with a fee that is a share of the amount."""
        tags = [["ilp_address", self.address(name)], ["fee_ppm", str(ppm)]]
        self.events.append(event(self.key(name), 10032, tags, created_at=NOW - 30))

    def announce(self, name: str, *routes: Sequence[object], **more: Any) -> None:
        self.events.append(announces(self.key(name), *routes, **more))


def write_lines(path: Path, events: Iterable[Event | str]) -> str:
    lines = (each if isinstance(each, str) else json.dumps(each) for each in events)
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


def options(**more: Any) -> Options:
    return Options(now=NOW, generation="test", **more)
