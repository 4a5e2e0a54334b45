"""Charts as inline SVG without external files: columns by day, and bars by name.

Colours are classes; the page's style sheet defines them for light and dark.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT = 720, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 8, 12, 26
_STEPS = 5
_ROW = 34
_SUFFIXES = ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "k"))


@dataclass(frozen=True)
class Series:
    name: str
    values: Sequence[int]
    colour: str  # a class


def short(value: float) -> str:
    """A number with three digits, such as 1.23M for 1234567."""
    for size, suffix in _SUFFIXES:
        if value >= size:
            return f"{value / size:.3g}{suffix}"
    return f"{value:.3g}"


def axis_steps(highest: float) -> list[int]:
    """Round numbers from 0 to at least the highest value, in at most `_STEPS` steps."""
    size = 10 ** max(0, math.floor(math.log10(max(highest, 1) / _STEPS)))
    sizes = [each * size for each in (1, 2, 5, 10)]
    step = next(each for each in sizes if each * _STEPS >= highest)
    return [step * number for number in range(math.ceil(max(highest, 1) / step) + 1)]


def columns(title: str, labels: Sequence[str], series: Sequence[Series]) -> str:
    """Stacked columns, one for each label. Hovering shows the values of a column."""
    totals = [sum(each.values[at] for each in series) for at in range(len(labels))]
    axis = axis_steps(max(totals, default=0))
    top = axis[-1]
    step = (_WIDTH - _LEFT - _RIGHT) / max(len(labels), 1)
    parts = [_frame(title, labels, totals), *_grid(axis)]
    for at, label in enumerate(labels):
        x = _LEFT + at * step
        parts.append(_column(x, step, top, label, at, series))
        if at % max(1, math.ceil(len(labels) / 8)) == 0:
            middle = x + step / 2
            parts.append(f'<text class="axis" x="{middle:.1f}" y="{_HEIGHT - 8}" '
                         f'text-anchor="middle">{escape(label)}</text>')  # fmt: skip
    return "".join([*parts, "</svg>"])


def _column(
    x: float, step: float, top: float, label: str, at: int, series: Sequence[Series]
) -> str:
    width = max(1.0, min(step * 0.74, 40))
    left, y = x + (step - width) / 2, float(_HEIGHT - _BOTTOM)
    told = [label]
    boxes = []
    for each in series:
        height = each.values[at] / top * (_HEIGHT - _TOP - _BOTTOM)
        if not each.values[at]:
            continue
        y -= height
        told.append(f"{each.name}: {each.values[at]:,}")
        # A thin gap separates boxes whose colours look alike.
        shown = max(height - 1, 0.6)
        boxes.append(f'<rect class="{each.colour}" x="{left:.1f}" y="{y:.1f}" '
                     f'width="{width:.1f}" height="{shown:.1f}" rx="1.5"/>')  # fmt: skip
    area = f'<rect class="hover" x="{x:.1f}" y="{_TOP}" width="{step:.1f}" ' \
           f'height="{_HEIGHT - _TOP - _BOTTOM}"/>'  # fmt: skip
    return f"<g><title>{escape(chr(10).join(told))}</title>{area}{''.join(boxes)}</g>"


def _frame(title: str, labels: Sequence[str], totals: Sequence[int]) -> str:
    summary = f"{title}: {sum(totals):,} in all"
    if totals and max(totals):
        summary += f", most on {labels[totals.index(max(totals))]} with {max(totals):,}"
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(summary)}">'


def _grid(axis: Sequence[int]) -> list[str]:
    lines = []
    for value in axis:
        y = _HEIGHT - _BOTTOM - value / axis[-1] * (_HEIGHT - _TOP - _BOTTOM)
        kind = "base" if value == 0 else "grid"
        lines.append(f'<line class="{kind}" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" '
                     f'y1="{y:.1f}" y2="{y:.1f}"/>')  # fmt: skip
        lines.append(f'<text class="axis" x="{_LEFT - 8}" y="{y + 4:.1f}" '
                     f'text-anchor="end">{short(value)}</text>')  # fmt: skip
    return lines


def bars(title: str, rows: Sequence[tuple[str, int]], colour: str) -> str:
    """Horizontal bars, each with its name above and its value after the bar."""
    highest = max((value for _, value in rows), default=0) or 1
    height = max(len(rows), 1) * _ROW
    parts = [f'<svg viewBox="0 0 360 {height}" role="img" aria-label="{escape(title)}">']
    for at, (name, value) in enumerate(rows):
        y, width = at * _ROW, max(2.0, value / highest * 280)
        parts.append(
            f"<g><title>{escape(name)}: {value:,}</title>"
            f'<text class="name" x="0" y="{y + 12}">{escape(shortened(name))}</text>'
            f'<rect class="{colour}" x="0" y="{y + 17}" width="{width:.1f}" height="9" rx="2"/>'
            f'<text class="axis" x="{width + 8:.1f}" y="{y + 26}">{short(value)}</text></g>'
        )
    return "".join([*parts, "</svg>"])


def shortened(name: str, most: int = 36) -> str:
    return name if len(name) <= most else f"{name[: most - 9]}…{name[-8:]}"
