"""The operator's rules about authors, events, kinds and addresses, and unfinished removals.

All rules are in one partition with a version. Readers cache the rules and read only the version, so
a rule takes effect in every process within a second, at almost no cost.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from farthing.store.table import Add, Delete, Engine, Put, Query, Table, read_all

_RULES = "rules"
_VERSION = ("rules-version", "version")
_REMOVALS = "removals"
_NUMBER = "n"


class Subject(StrEnum):
    """The subject of a rule."""

    BANNED_KEY = "banned-key"
    ALLOWED_KEY = "allowed-key"
    BANNED_EVENT = "banned-event"
    ALLOWED_EVENT = "allowed-event"  # reviewed and accepted by the operator
    ALLOWED_KIND = "allowed-kind"  # where there are any, no others are taken
    DISALLOWED_KIND = "disallowed-kind"
    BLOCKED_IP = "blocked-ip"
    PROFILE = "profile"  # name, description and icon of the relay
    VANISHED = "vanished"  # one rule, once any key has asked to vanish (NIP-62)


@dataclass(frozen=True)
class Rules:
    """All rules at one moment: for each subject, its values with the reason that was given."""

    version: int = 0
    by_subject: Mapping[Subject, Mapping[str, str]] = field(default_factory=dict)

    def of(self, subject: Subject) -> Mapping[str, str]:
        return self.by_subject.get(subject, {})


@dataclass(frozen=True)
class Removal:
    """An author whose events are being removed, up to a time. With `gift_wraps`, gift wraps to this
    key are removed too (NIP-62)."""

    pubkey: str
    until: int
    gift_wraps: bool = False


class RuleBook:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def version(self) -> int:
        item = self._engine.get(Table.LEDGER, *_VERSION)
        return 0 if item is None else int(item[_NUMBER])

    def read(self) -> Rules:
        # The version is read first, so that rules written meanwhile are read again later.
        version = self.version()
        found: dict[Subject, dict[str, str]] = {}
        for row in read_all(self._engine, Query(Table.LEDGER, _RULES)):
            subject, _, value = row.sk.partition("#")
            found.setdefault(Subject(subject), {})[value] = row.item.get("reason", "")
        return Rules(version, found)

    def set(self, subject: Subject, value: str, reason: str, now: int) -> None:
        item = {"reason": reason, "time": now}
        self._engine.transact(
            [Put(Table.LEDGER, _RULES, f"{subject}#{value}", item), self._next_version()]
        )

    def unset(self, subject: Subject, value: str) -> None:
        self._engine.transact(
            [Delete(Table.LEDGER, _RULES, f"{subject}#{value}"), self._next_version()]
        )

    def _next_version(self) -> Add:
        return Add(Table.LEDGER, *_VERSION, {_NUMBER: 1})

    def begin_removal(self, removal: Removal) -> None:
        """Store a removal before its first event is removed, so that it continues after a crash."""
        item = {"until": removal.until, "wraps": removal.gift_wraps}
        self._engine.write(Put(Table.LEDGER, _REMOVALS, removal.pubkey, item))

    def finish_removal(self, removal: Removal) -> None:
        self._engine.write(Delete(Table.LEDGER, _REMOVALS, removal.pubkey))

    def removals(self) -> Iterator[Removal]:
        for row in read_all(self._engine, Query(Table.LEDGER, _REMOVALS)):
            yield Removal(row.sk, row.item["until"], row.item["wraps"])
