"""Passing a subscription on to other relays: the number of hops, the budget, and no loops."""

from farthing.btp_nips.errors import LoopDetected
from farthing.btp_nips.messages import HOPS_MAX, Metadata, Propagation


def check_loop(metadata: Metadata, own_pubkey: str, *, is_known_origin: bool) -> None:
    """`is_known_origin` says that another subscription here has the same origin. A renewal of the
    same subscription does not count. Raises LoopDetected."""
    if own_pubkey in metadata.path:
        raise LoopDetected("this relay has passed the subscription on already")
    if metadata.origin is not None and is_known_origin:
        raise LoopDetected("the same subscription has come here by another way")


def onward(metadata: Metadata, own_pubkey: str, own_origin: str, budget: int) -> Metadata | None:
    """The metadata for the next relays, or None if the subscription is not passed on.

    The last relay gets the path and the origin, but no `propagate`.
    """
    wanted = metadata.propagate
    if wanted is None or len(metadata.path) >= HOPS_MAX:
        return None
    hops = wanted.hops - 1
    return metadata._replace(
        propagate=Propagation(hops, budget) if hops else None,
        path=(*metadata.path, own_pubkey),
        origin=metadata.origin or own_origin,
    )


def share(budget: int, spent: int, relays: int) -> int:
    """The largest payment to each further relay, so that all payments stay within the budget."""
    return max(0, budget - spent) // relays if relays > 0 else 0
