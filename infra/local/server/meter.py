"""Metrics of the local server: plain counters, shown at /metrics in Prometheus' text form."""

import re
import threading

from farthing.ports.meter import Metric


class LocalMeter:
    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {(metric, ""): 0 for metric in Metric}
        self._mutex = threading.Lock()

    def count(self, metric: Metric, number: int = 1, code: str = "") -> None:
        with self._mutex:
            self._counts[metric, code] = self._counts.get((metric, code), 0) + number

    def text(self) -> str:
        return "".join(
            f"farthing_{_snake_case(metric)}_total{_label(code)} {number}\n"
            for (metric, code), number in list(self._counts.items())
        )


def _label(code: str) -> str:
    return f'{{code="{code}"}}' if code else ""


def _snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
