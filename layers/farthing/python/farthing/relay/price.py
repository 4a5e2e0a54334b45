"""What a given event costs here, its author considered."""

from typing import NamedTuple

from farthing.context import Agent
from farthing.ilp.toon import NotEncodable, encoded_length
from farthing.nostr.events import Event
from farthing.relay.moderation import is_allowed


def writes_free(agent: Agent, pubkey: str) -> bool:
    """The owner does not pay to itself, and authors whom the settings or the operator's rules allow
    pay nothing."""
    settings = agent.settings
    return pubkey == settings.pubkey or pubkey in settings.free_pubkeys or is_allowed(agent, pubkey)


class Charge(NamedTuple):
    price: int
    size: int  # of the encoding that the price is for; 0 where there is no price


_NOTHING = Charge(0, 0)


def charge_for(agent: Agent, event: Event) -> Charge:
    """The price of an event that has not been encoded yet: of the encoding that we would make."""
    settings = agent.settings
    if not settings.tariff.may_charge(event.kind) or writes_free(agent, event.pubkey):
        return _NOTHING
    size = encoded_size(event)
    return Charge(settings.tariff.price_event(event, size), size)


def price_of(agent: Agent, event: Event) -> int:
    return charge_for(agent, event).price


def encoded_size(event: Event) -> int:
    try:
        return encoded_length(event)
    except NotEncodable:  # no way to send it; its JSON comes near enough to name a price
        return len(event.to_json().encode())
