"""What a given event costs here, its author considered."""

from farthing.ilp.packet import DATA_MAX
from farthing.ilp.toon import NotEncodable, dumps_event
from farthing.nostr.events import Event
from farthing.settings import Settings


def writes_free(settings: Settings, pubkey: str) -> bool:
    """The owner does not pay to itself, and allow-listed authors pay nothing."""
    return pubkey == settings.pubkey or pubkey in settings.free_pubkeys


def price_of(settings: Settings, event: Event) -> int:
    """The price of an event that has not been encoded yet: of the encoding that we would make."""
    if writes_free(settings, event.pubkey) or not settings.tariff.may_charge(event.kind):
        return 0
    return settings.tariff.price_event(event, encoded_size(event))


def unpayable(size: int) -> str:
    return f"{size} bytes are more than a packet has room for, which are {DATA_MAX}"


def encoded_size(event: Event) -> int:
    try:
        return len(dumps_event(event))
    except NotEncodable:  # no way to send it; its JSON comes near enough to name a price
        return len(event.to_json().encode())
