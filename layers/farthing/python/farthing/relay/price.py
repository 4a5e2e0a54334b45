"""What a given event costs here, its author considered."""

from typing import NamedTuple

from farthing.ilp.toon import NotEncodable, dumps_event
from farthing.nostr.events import Event
from farthing.settings import Settings


def writes_free(settings: Settings, pubkey: str) -> bool:
    """The owner does not pay to itself, and allow-listed authors pay nothing."""
    return pubkey == settings.pubkey or pubkey in settings.free_pubkeys


class Charge(NamedTuple):
    price: int
    size: int  # of the encoding that the price is for; 0 where there is no price


_NOTHING = Charge(0, 0)


def charge_for(settings: Settings, event: Event) -> Charge:
    """The price of an event that has not been encoded yet: of the encoding that we would make."""
    if writes_free(settings, event.pubkey) or not settings.tariff.may_charge(event.kind):
        return _NOTHING
    size = encoded_size(event)
    return Charge(settings.tariff.price_event(event, size), size)


def price_of(settings: Settings, event: Event) -> int:
    return charge_for(settings, event).price


def encoded_size(event: Event) -> int:
    try:
        return len(dumps_event(event))
    except NotEncodable:  # no way to send it; its JSON comes near enough to name a price
        return len(event.to_json().encode())
