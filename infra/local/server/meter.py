"""Metrics of the local server, by Prometheus' own client: counters, and gauges that are computed
when the metrics are read."""

import re
from collections.abc import Callable, Iterable, Mapping

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from farthing.context import Agent
from farthing.ilp.packet import OTHER_CODE, Code, known_code
from farthing.ports.meter import Metric

_BY_CODE = {Metric.PACKETS_REJECTED}
_TIMES = {Metric.PACKET_MILLISECONDS: "farthing_packet_seconds"}


class LocalMeter:
    MEDIA_TYPE = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        self._times = {
            metric: Histogram(name, metric.about, registry=self._registry)
            for metric, name in _TIMES.items()
        }
        self._counters: dict[tuple[Metric, str], Counter] = {}
        for metric in Metric:
            if metric not in _TIMES:
                self._add_counter(metric)

    def _add_counter(self, metric: Metric) -> None:
        labels = ["code"] if metric in _BY_CODE else []
        counter = Counter(_name(metric), metric.about, labels, registry=self._registry)
        if not labels:
            self._counters[metric, ""] = counter
            return
        for code in (*Code, OTHER_CODE):  # every series exists from the start, with the value 0
            self._counters[metric, code] = counter.labels(code)

    def count(self, metric: Metric, number: int = 1, code: str = "") -> None:
        if metric in self._times:
            self._times[metric].observe(number / 1000)
        else:
            key = known_code(code) if metric in _BY_CODE else ""
            self._counters[metric, key].inc(number)

    def totals(self) -> Mapping[str, int]:
        found = {
            f"{metric}.{code}" if code else str(metric): int(counter._value.get())
            for (metric, code), counter in self._counters.items()
        }
        return {name: number for name, number in found.items() if number or "." not in name}

    def watch(self, agent: Agent, connections: Callable[[], int]) -> None:
        """Show current values as well: connections, events and balances."""
        self._registry.register(_Gauges(agent, connections))

    def text(self) -> bytes:
        return generate_latest(self._registry)


class _Gauges(Collector):
    def __init__(self, agent: Agent, connections: Callable[[], int]) -> None:
        self._agent = agent
        self._connections = connections

    def describe(self) -> Iterable[Family]:
        return []  # nothing is read at the start

    def collect(self) -> Iterable[Family]:
        yield GaugeMetricFamily(
            "farthing_connections", "Open connections, HTTP and WebSocket", self._connections()
        )
        yield GaugeMetricFamily(
            "farthing_events",
            "Number of the newest event in the changes feed: all events stored so far",
            self._agent.changes.last_number(),
        )
        balances = GaugeMetricFamily(
            "farthing_balance",
            "Sum of all peers' balances in units of the asset: posted is owed to us, pending is"
            " held for packets under way, payable is owed by us",
            labels=["part"],
        )
        for part, amount in self._balances().items():
            balances.add_metric([part], amount)
        yield balances

    def _balances(self) -> Mapping[str, int]:
        ledger = self._agent.ledger
        balances = [ledger.balance(account) for account in ledger.account_ids()]
        return {
            part: sum(getattr(balance, part) for balance in balances)
            for part in ("posted", "pending", "payable")
        }


def _name(metric: Metric) -> str:
    words = re.sub(r"(?<!^)(?=[A-Z])", "_", metric).lower()
    return f"farthing_{words}"
