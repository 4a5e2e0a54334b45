"""Metrics of the local server: plain counters, shown at /metrics in Prometheus' text form."""

import re
import threading

from farthing.relay.meter import Metric


class LocalMeter:
    def __init__(self) -> None:
        self._counts = dict.fromkeys(Metric, 0)
        self._mutex = threading.Lock()

    def count(self, metric: Metric, number: int = 1) -> None:
        with self._mutex:
            self._counts[metric] += number

    def text(self) -> str:
        return "".join(
            f"farthing_{_snake_case(metric)}_total {number}\n"
            for metric, number in self._counts.items()
        )


def _snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
