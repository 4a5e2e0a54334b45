"""The report as one HTML page without external files: no script, no font, no image.

The page is made from a few rows of plain Python, without Spark.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from html import escape
from importlib.resources import files

from glue_jobs.charts import Series, bars, columns, short, shortened

FORWARDED = -1  # the kind under which forwarded packets are counted
OTHER = -2
AETHER = -3  # all Aether events: their kinds have other meanings than Nostr's
_COLOURS = 5  # number of kinds that have a colour of their own in charts
_KINDS = {
    0: "profile", 1: "note", 3: "follow list", 4: "direct message", 5: "deletion", 6: "repost",
    7: "reaction", 1059: "gift wrap", 1984: "report", 9735: "zap", 10002: "relay list",
    10032: "ILP peer info", 10033: "route announcement", 30023: "article",
}  # fmt: skip


@dataclass(frozen=True)
class Activity:
    """The figures of one kind on one day."""

    day: date
    kind: int
    events: int
    authors: int
    bytes: int
    deliveries: int
    forwards: int
    revenue: int


@dataclass(frozen=True)
class Payer:
    peer: str
    packets: int
    bytes: int
    revenue: int


@dataclass(frozen=True, kw_only=True)
class Totals:
    events: int
    authors: int
    bytes: int
    deliveries: int
    forwards: int
    revenue: int
    payers: int


@dataclass(frozen=True)
class Page:
    name: str
    unit: str  # of revenue
    first: date
    last: date
    totals: Totals
    activity: Sequence[Activity]
    authors: Mapping[date, int]  # by day
    payers: Sequence[Payer]

    @property
    def days(self) -> list[date]:
        return [self.first + timedelta(n) for n in range((self.last - self.first).days + 1)]

    @property
    def labels(self) -> list[str]:
        return [f"{day.day} {day:%b}" for day in self.days]


_MEASURES: tuple[Callable[[Activity], int], ...] = (
    lambda row: row.events,
    lambda row: row.revenue,
    lambda row: row.bytes,
)


def render(page: Page) -> str:
    name = escape(page.name or "the relay")
    span = f"{_written(page.first)} to {_written(page.last)}, days in UTC"
    body = [
        f"<header><p class=kicker>Farthing relay report</p><h1>{name}</h1>"
        f"<p class=span>{span}</p></header>",
        _tiles(page),
        _daily(page, "Events stored", "events", lambda row: row.events),
        _daily(page, "Revenue", page.unit, lambda row: row.revenue),
        _daily(page, "Deliveries", "paid packets", lambda row: row.deliveries),
        _daily(page, "Bytes stored", "bytes of JSON", lambda row: row.bytes),
        _authors(page),
        _payers(page),
        _kinds(page),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{name}: relay report</title><style>{_style()}</style></head>"
        f"<body><main>{''.join(body)}</main></body></html>\n"
    )


def _written(day: date) -> str:
    return f"{day.day} {day:%B %Y}"


def kind_name(kind: int) -> str:
    if kind == OTHER:
        return "other kinds"
    if kind == FORWARDED:
        return "forwarded packets"
    if kind == AETHER:
        return "Aether events"
    known = _KINDS.get(kind)
    return f"{known} ({kind})" if known else f"kind {kind}"


def _style() -> str:
    # Through the loader: on Glue this package is inside a zip file.
    return files("glue_jobs").joinpath("report_page.css").read_text()


def _tiles(page: Page) -> str:
    totals = page.totals
    tiles = [
        ("Events", totals.events, f"{short(totals.bytes)} bytes"),
        ("Authors", totals.authors, "distinct keys"),
        ("Revenue", totals.revenue, escape(page.unit)),
        ("Deliveries", totals.deliveries, f"from {totals.payers:,} payers"),
        ("Forwarded", totals.forwards, "packets for others"),
    ]
    cells = (
        f"<div class=tile><dt>{name}</dt>"
        f"<dd title='{value:,}'>{short(value)}</dd><dd class=note>{note}</dd></div>"
        for name, value, note in tiles
    )
    return f"<dl class=tiles>{''.join(cells)}</dl>"


def _daily(page: Page, title: str, unit: str, value: Callable[[Activity], int]) -> str:
    series = _series(page, value)
    if not series:
        return _section(f"{title} by day", "", "<p class=none>Nothing in these days.</p>")
    legend = "".join(f"<li><i class={each.colour}></i>{escape(each.name)}</li>" for each in series)
    chart = columns(f"{title} by day", page.labels, series)
    return _section(f"{title} by day", unit, f"<ul class=legend>{legend}</ul>{chart}")


def _authors(page: Page) -> str:
    series = [Series("authors", [page.authors.get(day, 0) for day in page.days], "one")]
    return _section(
        "Authors by day", "distinct keys", columns("Authors by day", page.labels, series)
    )


def _section(title: str, unit: str, body: str) -> str:
    beside = f" <small>{escape(unit)}</small>" if unit else ""
    return f"<section><h2>{title}{beside}</h2>{body}</section>"


def _series(page: Page, value: Callable[[Activity], int]) -> list[Series]:
    """One series for each kind with a colour of its own, and one for all other kinds."""
    colours = _colours(page.activity)
    of_kind: dict[int, dict[date, int]] = {}
    for row in page.activity:
        by_day = of_kind.setdefault(row.kind if row.kind in colours else OTHER, {})
        by_day[row.day] = by_day.get(row.day, 0) + value(row)
    return [
        Series(kind_name(kind), [of_kind[kind].get(day, 0) for day in page.days], colour)
        for kind, colour in {**colours, OTHER: "c0"}.items()
        if any(of_kind.get(kind, {}).values())
    ]


def _colours(activity: Sequence[Activity]) -> dict[int, str]:
    """The kinds with the largest shares and their colours, which are the same in every chart."""
    weight: dict[int, float] = {}
    for value in _MEASURES:
        total = sum(map(value, activity)) or 1
        for row in activity:
            weight[row.kind] = weight.get(row.kind, 0) + value(row) / total
    ranked = sorted(weight.keys() - {OTHER}, key=lambda kind: (-weight[kind], kind))
    return {kind: f"c{at}" for at, kind in enumerate(ranked[:_COLOURS], start=1)}


def _payers(page: Page) -> str:
    if not page.payers:
        return _section("Top payers", "", "<p class=none>Nobody has paid in these days.</p>")
    chart = bars(
        "Top payers by revenue", [(each.peer, each.revenue) for each in page.payers], "one"
    )
    rows = [
        (shortened(each.peer, 20), f"{each.packets:,}", short(each.bytes), f"{each.revenue:,}")
        for each in page.payers
    ]
    table = _table(("Payer", "Packets", "Bytes", "Revenue"), rows)
    return _section("Top payers", page.unit, f"<div class=pair>{chart}{table}</div>")


def _kinds(page: Page) -> str:
    kinds = sorted({row.kind for row in page.activity}, key=lambda kind: (kind < 0, kind))
    rows = []
    for kind in kinds:
        of_kind = [row for row in page.activity if row.kind == kind]
        sums = [
            sum(getattr(row, name) for row in of_kind)
            for name in ("events", "bytes", "deliveries", "forwards", "revenue")
        ]
        rows.append((kind_name(kind), *(f"{value:,}" for value in sums)))
    if not rows:
        return _section("By kind", "", "<p class=none>Nothing in these days.</p>")
    table = _table(("Kind", "Events", "Bytes", "Deliveries", "Forwarded", "Revenue"), rows)
    return _section("By kind", f"revenue in {page.unit}", table)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    lines = (
        f'<tr><th scope="row">{escape(row[0])}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    head_row, body = f"<thead><tr>{heads}</tr></thead>", f"<tbody>{''.join(lines)}</tbody>"
    return f"<div class=scroll><table>{head_row}{body}</table></div>"
