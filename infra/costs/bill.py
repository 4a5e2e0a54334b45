"""Used amounts, and their costs."""

from collections import Counter
from collections.abc import Mapping

from infra.costs.prices import PICO, Price, Service, Unit

Usage = Counter[Unit]
Prices = Mapping[Unit, Price]


def times(usage: Usage, factor: int) -> Usage:
    return Counter({unit: amount * factor for unit, amount in usage.items()})


def total(usage: Usage, prices: Prices) -> int:
    """Picodollars."""
    return sum(prices[unit].of(amount) for unit, amount in usage.items())


def total_beyond_free(usage: Usage, prices: Prices) -> int:
    """Picodollars in an account that does nothing else: the free amounts of each month are not
    counted."""
    return sum(prices[unit].beyond_free(amount) for unit, amount in usage.items())


def by_service(usage: Usage, prices: Prices) -> dict[Service, int]:
    parts: Counter[Service] = Counter()
    for unit, amount in usage.items():
        parts[prices[unit].service] += prices[unit].of(amount)
    return dict(parts)


def dollars(picodollars: int) -> str:
    """Dollars and cents, rounded to the nearest cent."""
    cents = (picodollars + PICO // 200) // (PICO // 100)
    return f"{cents // 100:,}.{cents % 100:02}"
