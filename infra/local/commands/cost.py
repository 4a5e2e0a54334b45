"""`farthing cost`: what a deployed relay costs, idle and for each kind of use.

The command measures the amounts by running the relay's verbs in memory. Prices are in one table.
"""

import json
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from farthing.settings import Settings
from infra.costs.bill import (
    Prices,
    Usage,
    by_service,
    dollars,
    total,
    total_beyond_free,
)
from infra.costs.idle import Line, NoTemplates, Templates, idle
from infra.costs.measured import MILLION, Place, Scene
from infra.costs.prices import AS_OF, PICO, REGION, InvalidPrices, Service, Unit, with_changes
from infra.deployment import Deployment
from infra.local.commands.terminal import whole_number
from infra.permissions import TABLES

ERRORS = (InvalidPrices,)

_SERVICES = (
    Service.DYNAMODB, Service.LAMBDA, Service.API_GATEWAY, Service.CLOUDFRONT, Service.CLOUDWATCH
)  # fmt: skip


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--templates",
        type=Path,
        default=Path("cdk.out"),
        help="folder of the synthesised templates, for the idle costs; %(default)s if left out",
    )
    parser.add_argument(
        "--prices", type=Path, help="JSON file with prices that replace those of the table"
    )
    parser.add_argument(
        "--gigabytes", type=whole_number, default=0, help="gigabytes that are stored already"
    )
    parser.add_argument("--json", action="store_true", help="all figures, in picodollars")


def run(arguments: Namespace, settings: Settings) -> int:
    prices = with_changes(arguments.prices)
    prefix = settings.table_prefix
    try:
        templates = Templates.read(arguments.templates)
        place = templates.place(prefix)
    except NoTemplates as reason:
        templates, place, why = None, _as_by_default(), str(reason)
    else:
        why = ""
    by_clock = {
        "sweeper": Scene(place, settings).sweep(),
        "outbox": Scene(place, settings).outbox(),
        "feeds": Scene(place, settings).feeds(),
        "upkeep": Scene(place, settings).upkeep(),
    }
    standing = idle(templates, prefix, by_clock, arguments.gigabytes) if templates else []
    doing = done(place, settings)
    if arguments.json:
        print(json.dumps(_as_json(standing, doing, prices), indent=2))
        return 0
    print(f"List prices of {REGION} as of {AS_OF}, in dollars; free tiers not deducted.")
    _print_idle(standing, why, prices)
    _print_done(doing, prices)
    _print_margin(doing, place, settings, prices)
    return 0


def _as_by_default() -> Place:
    chosen = Deployment()
    return Place({name: chosen.memory_of.get(name, chosen.memory) for name in TABLES})


def done(place: Place, settings: Settings) -> list[Line]:
    """What a million of each operation uses."""

    def new() -> Scene:
        # A relay of its own for each operation, so that none affects another.
        return Scene(place, settings)

    paid, numbered, looked = (
        new().paid_write(),
        new().numbering(),
        new().looking_for_subscriptions(),
    )
    kept = new().kept_bytes() * MILLION
    minute: Usage = Counter({Unit.CONNECTION_MINUTES: MILLION})
    hour = Counter({unit: 60 * each for unit, each in minute.items()}) + new().connection().usage
    month: Usage = Counter({Unit.STORED_BYTES: kept, Unit.RECOVERABLE_BYTES: kept})
    whole = paid.usage + numbered.usage + looked.usage
    return [
        Line("paid write, all told", whole),
        Line("  POST /ilp, a note with 2 tags", paid.usage),
        Line("  its number, given alone", numbered.usage),
        Line("  finding its subscriptions", looked.usage),
        Line("number, given 49 at once", new().full_batches().usage),
        Line("delivery to a subscription", new().delivery().usage),
        Line("event to a paid subscription", new().paid_delivery().usage),
        Line("event paid for at another relay", new().placement().usage),
        Line("change pushed to a live feed", new().push().usage),
        Line("owner's EVENT, free", new().free_write().usage),
        Line("EVENT paid from a purse", new().purse_write().usage),
        Line("REQ, 100 events", new().request().usage),
        Line("REQ for new events, and CLOSE", new().subscription().usage),
        Line("COUNT of 100", new().count().usage),
        Line("negentropy, 1,000 events alike", new().sync().usage),
        Line("owner's Aether note, by Noise", new().noise_frame().usage),
        Line("GET /v1/stream, nothing new", new().stream_poll().usage),
        Line("connection minute", minute),
        Line("connection of an hour", hour),
        Line("paid event, kept for a month", month),
    ]


def _print_idle(lines: Sequence[Line], why: str, prices: Prices) -> None:
    if why:
        print(f"\nIdle: {why}.")
        return
    whole = sum((line.usage for line in lines), Counter[Unit]())
    print(f"\n{'Idle, a month':<42}{'dollars':>10}")
    for line in lines:
        print(f"{line.name:<42}{dollars(total(line.usage, prices)):>10}")
    print(f"{'together':<42}{dollars(total(whole, prices)):>10}")
    print(f"{'in an account with nothing else in it':<42}"
          f"{dollars(total_beyond_free(whole, prices)):>10}")  # fmt: skip


def _print_done(lines: Sequence[Line], prices: Prices) -> None:
    print(f"\n{'A million of':<34}{'dollars':>9}" + "".join(f"{each:>12}" for each in _SERVICES))
    for line in lines:
        parts = by_service(line.usage, prices)
        shares = "".join(f"{dollars(parts.get(each, 0)):>12}" for each in _SERVICES)
        print(f"{line.name:<34}{dollars(total(line.usage, prices)):>9}{shares}")


def _print_margin(lines: Sequence[Line], place: Place, settings: Settings, prices: Prices) -> None:
    """Print the price per byte that covers the costs, if the asset is dollars."""
    if settings.asset_code != "USD":
        return
    costs = total(lines[0].usage, prices)  # picodollars of a million
    size = Scene(place, settings).note_size()
    unit = PICO // 10**settings.asset_scale if settings.asset_scale <= 12 else 0
    if not unit:
        return
    least = -(-costs // (MILLION * size * unit))
    bring = size * settings.price_per_byte * unit * MILLION
    print(
        f"\nThat note has {size} bytes. At {settings.price_per_byte} per byte, a million notes"
        f" bring {dollars(bring)}.\nFARTHING_PRICE_PER_BYTE={least} covers their costs."
    )


def _as_json(standing: Sequence[Line], doing: Sequence[Line], prices: Prices) -> object:
    def rows(lines: Sequence[Line]) -> list[object]:
        return [
            {"name": line.name.strip(), "picodollars": total(line.usage, prices),
             "usage": dict(sorted(line.usage.items()))}
            for line in lines
        ]  # fmt: skip

    return {"region": REGION, "as_of": AS_OF, "idle_month": rows(standing), "million": rows(doing)}
