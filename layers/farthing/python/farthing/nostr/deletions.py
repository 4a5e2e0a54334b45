"""Deletion requests (NIP-09): the events and addresses that a kind 5 names and that its author
owns."""

from collections.abc import Sequence
from typing import NamedTuple

from farthing.nostr.events import Event, is_hex64
from farthing.nostr.kinds import Keeping, keeping


class Targets(NamedTuple):
    """The events of one author that are to be deleted, and the addresses up to the time of the
    request. Whether the author has written a named event can be checked only with the event
    itself."""

    ids: Sequence[str]
    addresses: Sequence[str]


def targets_of(deletion: Event) -> Targets:
    ids = [value for value in dict.fromkeys(deletion.values("e")) if is_hex64(value)]
    addresses = dict.fromkeys(deletion.values("a"))
    return Targets(ids, [each for each in addresses if _owns_address(deletion.pubkey, each)])


def _owns_address(pubkey: str, address: str) -> bool:
    parts = address.split(":", 2)
    if len(parts) != 3 or not parts[0].isdecimal() or not parts[0].isascii():
        return False
    kind = keeping(int(parts[0])) if len(parts[0]) <= 5 else Keeping.REGULAR
    if kind is Keeping.REPLACEABLE:
        return parts[1] == pubkey and parts[2] == ""
    return kind is Keeping.ADDRESSABLE and parts[1] == pubkey
