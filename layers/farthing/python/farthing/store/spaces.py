"""Key spaces: where the events of one format stand in the tables, apart from those of all others.

The store knows an event as a `Storable` and a filter as a `Wanted`. A `Space` says how the keys of
its events begin and how an event is read back. Another event format is added by one more `Space` in
`SPACES`; the event store, the postings, the planner and the change log take the space as an
argument. No key of one space is a key of another, so a reader of one space never meets another's
items.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from farthing.nostr.deletions import Targets, targets_of
from farthing.nostr.events import Event, known_event
from farthing.nostr.kinds import PRIVATE_KINDS, Keeping, Kind

if TYPE_CHECKING:
    from farthing.aether.events import Event as AetherEvent

PUBKEY_DIGITS = 64


class Storable(Protocol):
    """An event of any format, as far as the store has to know it."""

    @property
    def id(self) -> str:
        """64 hexadecimal digits."""
        ...

    @property
    def pubkey(self) -> str:
        """The author: 64 hexadecimal digits."""
        ...

    @property
    def created_at(self) -> int:
        """The event's place in the order of its space, below 2**64: seconds in one format,
        nanoseconds in another."""
        ...

    @property
    def kind(self) -> int:
        """At most 16 bits."""
        ...

    @property
    def keeping(self) -> Keeping: ...

    @property
    def address(self) -> str | None:
        """`kind:pubkey:name` where only the latest event of an address is kept, else None."""
        ...

    @property
    def expiration(self) -> int | None:
        """The epoch second from which the event no longer exists."""
        ...

    def indexed_tags(self) -> Iterable[tuple[str, str]]:
        """(key, value) of each tag that filters can ask for. A key has no '#'."""
        ...

    def to_json(self) -> str:
        """The event as it is kept and sent."""
        ...


E = TypeVar("E", bound=Storable)
E_contra = TypeVar("E_contra", bound=Storable, contravariant=True)


class Wanted(Protocol[E_contra]):
    """A filter of any format. A field that is None does not constrain; one that is empty matches
    nothing. `since` and `until` are of the same unit as the events' `created_at`."""

    @property
    def ids(self) -> frozenset[str] | None: ...

    @property
    def authors(self) -> frozenset[str] | None:
        """Keys, or prefixes of keys that are no shorter than the space's `author_digits`."""
        ...

    @property
    def kinds(self) -> frozenset[int] | None: ...

    @property
    def tags(self) -> Mapping[str, frozenset[str]]: ...

    @property
    def since(self) -> int | None: ...

    @property
    def until(self) -> int | None: ...

    @property
    def limit(self) -> int | None: ...

    def has_author(self, pubkey: str) -> bool: ...

    def matches(self, event: E_contra) -> bool: ...

    def matches_tags(self, event: E_contra) -> bool: ...


def _no_targets(_: Any) -> Targets:
    return Targets((), ())


@dataclass(frozen=True, eq=False)
class Space(Generic[E]):
    """One event format's part of the tables."""

    name: str
    # What every key of the space begins with. No key of another space begins so.
    prefix: str
    # An event from the JSON that it was stored as. It was checked before it was stored.
    parse: Callable[[str], E]
    # By so many digits of a key an author's events are listed: filters may ask for no fewer.
    author_digits: int = PUBKEY_DIGITS
    # The kind whose events delete others, and the others that one of them names.
    deletion_kind: int | None = None
    targets: Callable[[E], Targets] = _no_targets
    # Events of these kinds are not counted by index entries: not everybody may know of them.
    private_kinds: frozenset[int] = frozenset()

    def author_list(self, pubkey: str) -> str:
        """The part of a key, or of a prefix of a key, by which an author's events are listed."""
        return pubkey[: self.author_digits]


NOSTR: Space[Event] = Space(
    "nostr",
    "",
    known_event,
    deletion_kind=Kind.DELETION,
    targets=targets_of,
    private_kinds=PRIVATE_KINDS,
)


def _aether_event(json: str) -> "AetherEvent":
    # Loaded with the first Aether event: most functions never see one, and its libraries take time.
    from farthing.aether.events import known_event

    return known_event(json)


# Filters may ask for authors by the first half of their keys. Nothing is deleted or private.
AETHER: "Space[AetherEvent]" = Space("aether", "x", _aether_event, author_digits=32)

# Every space there is. A prefix that is empty comes last: it begins every key.
SPACES: tuple[Space[Any], ...] = (AETHER, NOSTR)
