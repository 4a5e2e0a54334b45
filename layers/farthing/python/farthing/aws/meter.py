"""Metrics by Powertools: written to the log in CloudWatch's embedded format when a call ends."""

from collections.abc import Mapping

from aws_lambda_powertools import Metrics
from aws_lambda_powertools.metrics import MetricUnit

from farthing.ports.meter import Metric, known_code, metric_namespace

_UNITS = {Metric.PACKET_MILLISECONDS: MetricUnit.Milliseconds}


class PowertoolsMeter:
    def __init__(self, prefix: str) -> None:
        self._metrics = Metrics(namespace=metric_namespace(prefix), service="relay")
        self._counted = False

    def count(self, metric: Metric, number: int = 1, code: str = "") -> None:
        unit = _UNITS.get(metric, MetricUnit.Count)
        self._counted = True
        self._metrics.add_metric(name=metric, unit=unit, value=number)
        if code:  # once more under its code, which sums and alarms can be set on
            self._metrics.add_metric(name=f"{metric}{known_code(code)}", unit=unit, value=number)

    def totals(self) -> Mapping[str, int]:
        return {}  # each container knows its own calls only

    def flush(self) -> None:
        # With nothing to hand over it would write a warning: a line of log for every call.
        if self._counted:
            self._counted = False
            self._metrics.flush_metrics()
