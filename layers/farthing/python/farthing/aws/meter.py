"""Metrics by Powertools: written to the log in CloudWatch's embedded format when a call ends."""

from collections.abc import Mapping

from aws_lambda_powertools import Metrics
from aws_lambda_powertools.metrics import MetricUnit

from farthing.ports.meter import Metric, metric_namespace

_UNITS = {Metric.PACKET_MILLISECONDS: MetricUnit.Milliseconds}


class PowertoolsMeter:
    def __init__(self, prefix: str) -> None:
        self._metrics = Metrics(namespace=metric_namespace(prefix), service="relay")
        self._counted = False

    def count(self, metric: Metric, number: int = 1, code: str = "") -> None:
        unit = _UNITS.get(metric, MetricUnit.Count)
        self._counted = True
        self._metrics.add_metric(name=metric, unit=unit, value=number)
        if code:  # also under its code, for sums and alarms
            # Imported here, because most functions see no packets.
            from farthing.ilp.packet import known_code

            self._metrics.add_metric(name=f"{metric}{known_code(code)}", unit=unit, value=number)

    def totals(self) -> Mapping[str, int]:
        return {}  # each container counts only its own calls

    def flush(self) -> None:
        # Without metrics, Powertools would log a warning with every call.
        if self._counted:
            self._counted = False
            self._metrics.flush_metrics()
