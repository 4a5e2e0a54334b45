"""Metrics by Powertools: written to the log in CloudWatch's embedded format when a call ends."""

from aws_lambda_powertools import Metrics
from aws_lambda_powertools.metrics import MetricUnit

from farthing.relay.meter import Metric


class PowertoolsMeter:
    def __init__(self) -> None:
        self._metrics = Metrics(namespace="Farthing", service="relay")

    def count(self, metric: Metric, number: int = 1) -> None:
        self._metrics.add_metric(name=metric, unit=MetricUnit.Count, value=number)

    def flush(self) -> None:
        self._metrics.flush_metrics()
