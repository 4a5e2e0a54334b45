"""Key spaces, which separate the events of each format in the tables.

The store knows an event as a `Storable` and a filter as a `Wanted`. A `Space` says how the keys of
its events begin and how an event is read back. Another event format is added by one more `Space` in
`SPACES`; the event store, the postings, the reader and the change log take the space as an
argument. No key of one space is a key of another, so a reader of one space never meets another's
items.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from farthing.nostr.deletions import Targets, targets_of
from farthing.nostr.events import Event, json_closing, json_opening, known_event
from farthing.nostr.kinds import PRIVATE_KINDS, UNDELETABLE_KINDS, Keeping, Kind

if TYPE_CHECKING:
    from farthing.aether.events import Event as AetherEvent

PUBKEY_DIGITS = 64


class Storable(Protocol):
    """The attributes of an event of any format that the store needs."""

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
        """`kind:pubkey:name` if only the latest event of an address is stored, else None."""
        ...

    @property
    def expiration(self) -> int | None:
        """The epoch second from which the event no longer exists."""
        ...

    def indexed_tags(self) -> Iterable[tuple[str, str]]:
        """(key, value) of each tag that filters can ask for. A key has no '#'."""
        ...

    def to_json(self) -> str:
        """The event in its stored and sent form."""
        ...


E = TypeVar("E", bound=Storable)
E_contra = TypeVar("E_contra", bound=Storable, contravariant=True)


class Wanted(Protocol[E_contra]):
    """A filter of any format. A field that is None sets no condition; an empty field matches
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

    @property
    def is_of_ids_alone(self) -> bool:
        """Whether ids are the only condition, so that each event with one of them matches."""
        ...

    def has_author(self, pubkey: str) -> bool: ...

    def matches(self, event: E_contra) -> bool: ...

    def matches_tags(self, event: E_contra) -> bool: ...


def _no_targets(_: Any) -> Targets:
    return Targets((), ())


@dataclass(frozen=True, eq=False)
class Space(Generic[E]):
    """One event format's part of the tables."""

    name: str
    # The prefix of every key of the space. No key of another space has it.
    prefix: str
    # An event from the JSON that it was stored as. It was checked before it was stored.
    parse: Callable[[str], E]
    # The number of digits of an author's key in lists. A filter's prefix must have at least as
    # many.
    author_digits: int = PUBKEY_DIGITS
    # The kind of deletions, the kinds that no deletion removes, and the targets of a deletion.
    deletion_kind: int | None = None
    undeletable_kinds: frozenset[int] = frozenset()
    targets: Callable[[E], Targets] = _no_targets
    # Events of these kinds are not counted by index entries, because they are private.
    private_kinds: frozenset[int] = frozenset()
    # How the JSON of each event begins, by id and author, and how it ends, by signature. An engine
    # may store only the part between them. Empty texts: nothing is known.
    json_opening: Callable[[str, str], str] = lambda _id, _pubkey: ""
    json_closing: Callable[[str], str] = lambda _signature: ""

    def author_list(self, pubkey: str) -> str:
        """The part of a key, or of a prefix of a key, by which an author's events are listed."""
        return pubkey[: self.author_digits]


NOSTR: Space[Event] = Space(
    "nostr",
    "",
    known_event,
    deletion_kind=Kind.DELETION,
    undeletable_kinds=UNDELETABLE_KINDS,
    targets=targets_of,
    private_kinds=PRIVATE_KINDS,
    json_opening=json_opening,
    json_closing=json_closing,
)


def _aether_event(json: str) -> "AetherEvent":
    # Imported with the first Aether event: most functions never see one, and the import is slow.
    from farthing.aether.events import known_event

    return known_event(json)


# Filters may ask for authors by the first half of their keys. Nothing is deleted or private.
AETHER: "Space[AetherEvent]" = Space("aether", "x", _aether_event, author_digits=32)

# All spaces. The space with the empty prefix is last, because every key begins with it.
SPACES: tuple[Space[Any], ...] = (AETHER, NOSTR)
