"""The price of storing an event, which also depends on its author."""

from typing import NamedTuple

from farthing.context import Agent
from farthing.ilp.toon import NotEncodable, encoded_length
from farthing.nostr.events import Event
from farthing.relay.moderation import is_allowed


def writes_free(agent: Agent, pubkey: str) -> bool:
    """Whether a key writes for free: the owner, and authors that the settings or the operator's
    rules allow."""
    settings = agent.settings
    return pubkey == settings.pubkey or pubkey in settings.free_pubkeys or is_allowed(agent, pubkey)


class Charge(NamedTuple):
    price: int
    size: int  # size of the priced encoding; 0 without a price


_NOTHING = Charge(0, 0)


def charge_for(agent: Agent, event: Event) -> Charge:
    """The price of an event that is not encoded yet, by the size of our own encoding."""
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
    except (
        NotEncodable
    ):  # the event cannot be sent as TOON; the size of its JSON is close enough for a price
        return len(event.to_json().encode())
