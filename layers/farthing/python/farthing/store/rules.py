"""The operator's rules about who and what is stored here, and removals that are under way.

All rules stand in one partition with a version. Readers keep them in memory and look at the version
alone, so a rule counts in every process within a second and costs next to nothing.
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
    """What a rule is about."""

    BANNED_KEY = "banned-key"
    ALLOWED_KEY = "allowed-key"
    BANNED_EVENT = "banned-event"
    ALLOWED_EVENT = "allowed-event"  # looked at by the operator, and fine
    ALLOWED_KIND = "allowed-kind"
    BLOCKED_IP = "blocked-ip"
    PROFILE = "profile"  # name, description and icon of the relay


@dataclass(frozen=True)
class Rules:
    """All rules at one moment: for each subject, its values with the reason that was given."""

    version: int = 0
    by_subject: Mapping[Subject, Mapping[str, str]] = field(default_factory=dict)

    def of(self, subject: Subject) -> Mapping[str, str]:
        return self.by_subject.get(subject, {})


@dataclass(frozen=True)
class Removal:
    """An author whose events are being removed, up to a time. With `gift_wraps`, also what others
    have wrapped for this key (NIP-62)."""

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
        # The version first: rules written meanwhile are read again, never overlooked.
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
        """Note a removal before its first event goes, so that a crash does not end it halfway."""
        item = {"until": removal.until, "wraps": removal.gift_wraps}
        self._engine.write(Put(Table.LEDGER, _REMOVALS, removal.pubkey, item))

    def finish_removal(self, removal: Removal) -> None:
        self._engine.write(Delete(Table.LEDGER, _REMOVALS, removal.pubkey))

    def removals(self) -> Iterator[Removal]:
        for row in read_all(self._engine, Query(Table.LEDGER, _REMOVALS)):
            yield Removal(row.sk, row.item["until"], row.item["wraps"])
