"""Figures of CloudWatch for the operator's console.

AWS bills for every metric that is read. So one request reads all metrics, and the console shows its
answer for minutes, however often it asks. If CloudWatch does not answer, the console shows the last
answer and the reason.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Final, NamedTuple

from farthing.ilp.packet import OTHER_CODE, Code
from farthing.ports.figures import Report, Watched
from farthing.ports.meter import Metric, metric_namespace

SOURCE: Final = "CloudWatch"
_HOURS: Final = 24
_HOUR, _FIVE_MINUTES = 3600, 300
_MOST_QUERIES: Final = 500  # of one request
_SHOWN: Final = tuple(metric for metric in Metric if metric is not Metric.PACKET_MILLISECONDS)
_VISIBLE: Final = "ApproximateNumberOfMessagesVisible"


class Query(NamedTuple):
    """One metric: its part and its name in the report, and its place in CloudWatch."""

    part: str
    name: str
    namespace: str
    metric: str
    dimensions: tuple[tuple[str, str], ...]
    statistic: str = "Sum"
    period: int = _HOUR

    def as_request(self, id: str) -> dict[str, Any]:
        metric = {
            "Namespace": self.namespace,
            "MetricName": self.metric,
            "Dimensions": [{"Name": name, "Value": value} for name, value in self.dimensions],
        }
        stat = {"Metric": metric, "Period": self.period, "Stat": self.statistic}
        return {"Id": id, "MetricStat": stat, "ReturnData": True}

    def value_of(self, values: Sequence[float]) -> int:
        """`values` are newest first. The depth of a queue is the newest value; every other figure
        is the sum."""
        return int(values[0]) if self.statistic != "Sum" else int(sum(values))


def make_client() -> Any:
    from botocore.config import Config
    from botocore.session import get_session

    # The owner waits for the page, so a missing figure is better than a long wait.
    config = Config(connect_timeout=1, read_timeout=3, retries={"total_max_attempts": 1})
    return get_session().create_client("cloudwatch", config=config)


class CloudWatchFigures:
    def __init__(
        self,
        prefix: str,
        *,
        socket_api: str,
        web_api: str,
        seconds: int,
        client: Callable[[], Any] = make_client,
    ) -> None:
        self._prefix = prefix
        self._apis = (("socket", socket_api), ("web", web_api))
        self._seconds = seconds
        self._make_client = client
        self._tried_at: int | None = None
        self._report = Report(SOURCE, _HOURS)

    @cached_property
    def _client(self) -> Any:
        return self._make_client()

    def read(self, watched: Watched, now: int) -> Report:
        # Also after a failure: if CloudWatch does not answer, not every view asks it again.
        if self._tried_at is None or not 0 <= now - self._tried_at < self._seconds:
            self._tried_at = now
            try:
                self._report = self._read(list(self._queries(watched)), now)
            except Exception as error:  # any error of botocore: only figures are lost
                trouble = f"{SOURCE} does not answer: {type(error).__name__}"
                self._report = replace(self._report, trouble=trouble)
        return self._report

    def _queries(self, watched: Watched) -> Iterator[Query]:
        api = dict(self._apis)
        for name, metric in (("Connections", "ConnectCount"), ("Messages", "MessageCount")):
            yield Query("counts", name, "AWS/ApiGateway", metric, (("ApiId", api["socket"]),))
        yield Query("counts", "Requests", "AWS/ApiGateway", "Count", (("ApiId", api["web"]),))
        namespace, service = metric_namespace(self._prefix), (("service", "relay"),)
        for each in _SHOWN:
            yield Query("counts", each, namespace, each, service)
        rejected = Metric.PACKETS_REJECTED
        for code in (*Code, OTHER_CODE):
            name = f"{rejected}.{code}"
            yield Query("counts", name, namespace, f"{rejected}{code}", service)
        for function in sorted(watched.functions):
            dimensions = (("FunctionName", self._prefix + function),)
            yield Query("errors", function, "AWS/Lambda", "Errors", dimensions)
        yield from self._depths("waiting", watched.queues)
        yield from self._depths("given_up", watched.failures)

    def _depths(self, part: str, queues: Iterable[str]) -> Iterator[Query]:
        for name in sorted(queues):
            dimensions = (("QueueName", self._prefix + name),)
            yield Query(part, name, "AWS/SQS", _VISIBLE, dimensions, "Maximum", _FIVE_MINUTES)

    def _read(self, queries: Sequence[Query], now: int) -> Report:
        end = datetime.fromtimestamp(now, UTC)
        asked = {f"m{number}": query for number, query in enumerate(queries[:_MOST_QUERIES])}
        answer = self._client.get_metric_data(
            MetricDataQueries=[query.as_request(id) for id, query in asked.items()],
            StartTime=end - timedelta(hours=_HOURS),
            EndTime=end,
            ScanBy="TimestampDescending",
        )
        values = {each["Id"]: each["Values"] for each in answer["MetricDataResults"]}
        parts: dict[str, dict[str, int]] = {}
        for id, query in asked.items():
            # CloudWatch has no data for a metric that was never published.
            number = query.value_of(values[id]) if values.get(id) else 0
            parts.setdefault(query.part, {})[query.name] = number
        # Codes and functions without a count are left out.
        counts, errors = parts["counts"], parts.get("errors", {})
        return Report(
            SOURCE, _HOURS, now,
            counts={name: value for name, value in counts.items() if value or "." not in name},
            errors={name: value for name, value in errors.items() if value},
            waiting=parts.get("waiting", {}),
            given_up=parts.get("given_up", {}),
        )  # fmt: skip
