"""CloudWatch's figures for the operator's console: over moto, and where it is in trouble."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError
from moto import mock_aws

from farthing.aws.figures import CloudWatchFigures, make_client
from farthing.ports.figures import Watched
from farthing.ports.meter import Metric
from farthing.surface import QUEUES, STREAMS, functions
from tests.relay.world import aws_credentials

# In the middle of an hour of moto's: it counts from now.
NOW = int(datetime.now(UTC).timestamp())
WATCHED = Watched(
    functions(), [each.name for each in QUEUES], [each.failures for each in (*STREAMS, *QUEUES)]
)


@pytest.fixture(autouse=True)
def cloudwatch() -> Iterator[Any]:
    with aws_credentials(), mock_aws():
        yield make_client()


class Client:
    """Counts what is asked, of a client that answers or fails."""

    def __init__(self, inner: Any = None) -> None:
        self.inner = inner
        self.requests: list[dict[str, Any]] = []

    def get_metric_data(self, **given: Any) -> Any:
        self.requests.append(given)
        if self.inner is None:
            raise EndpointConnectionError(endpoint_url="https://cloudwatch.example")
        return self.inner.get_metric_data(**given)


def figures(client: Client) -> CloudWatchFigures:
    return CloudWatchFigures(
        "farthing-", socket_api="sock", web_api="web", seconds=300, client=lambda: client
    )


def put(client: Any, namespace: str, metric: str, value: float, minutes: int, **given: str) -> None:
    client.put_metric_data(
        Namespace=namespace,
        MetricData=[
            {
                "MetricName": metric,
                "Value": value,
                "Timestamp": datetime.fromtimestamp(NOW - 60 * minutes, UTC),
                "Dimensions": [{"Name": name, "Value": text} for name, text in given.items()],
            }
        ],
    )


def test_a_day_is_added_up_by_name_code_and_function(cloudwatch: Any) -> None:
    for minutes in (2, 300):
        put(cloudwatch, "AWS/ApiGateway", "ConnectCount", 3, minutes, ApiId="sock")
        put(cloudwatch, "AWS/ApiGateway", "MessageCount", 40, minutes, ApiId="sock")
        put(cloudwatch, "farthing", "Revenue", 500, minutes, service="relay")
        put(cloudwatch, "farthing", "PacketsRejectedF04", 2, minutes, service="relay")
        put(cloudwatch, "AWS/Lambda", "Errors", 1, minutes, FunctionName="farthing-ilp")
    put(cloudwatch, "farthing", "Revenue", 9000, 60 * 30, service="relay")  # two days ago
    put(cloudwatch, "farthing", "Revenue", 9000, 2, service="another")
    put(cloudwatch, "AWS/ApiGateway", "ConnectCount", 9000, 2, ApiId="another")

    report = figures(Client(cloudwatch)).read(WATCHED, NOW)

    assert report.trouble == ""
    assert (report.source, report.hours, report.read_at) == ("CloudWatch", 24, NOW)
    assert report.counts["Connections"] == 6
    assert report.counts["Messages"] == 80
    assert report.counts[Metric.REVENUE] == 1000
    assert report.counts[Metric.EVENTS_STORED] == 0
    codes = {name: value for name, value in report.counts.items() if "." in name}
    assert codes == {"PacketsRejected.F04": 4}
    assert report.errors == {"ilp": 2}


def test_a_queue_is_as_deep_as_it_was_last_seen(cloudwatch: Any) -> None:
    name, metric = "farthing-sequencer-failures", "ApproximateNumberOfMessagesVisible"
    put(cloudwatch, "AWS/SQS", metric, 9, 120, QueueName=name)
    put(cloudwatch, "AWS/SQS", metric, 2, 7, QueueName=name)

    report = figures(Client(cloudwatch)).read(WATCHED, NOW)

    assert report.given_up["sequencer-failures"] == 2
    assert report.given_up["fanout-failures"] == 0
    assert set(report.waiting) == {each.name for each in QUEUES}


def test_a_console_that_is_left_open_asks_once_in_five_minutes(cloudwatch: Any) -> None:
    client = Client(cloudwatch)
    watching = figures(client)

    for second in range(0, 901, 10):
        watching.read(WATCHED, NOW + second)

    assert len(client.requests) == 4
    assert len(client.requests[0]["MetricDataQueries"]) <= 500  # in one request


def test_where_cloudwatch_does_not_answer_the_last_figures_stand_and_say_why(
    cloudwatch: Any,
) -> None:
    put(cloudwatch, "farthing", "EventsStored", 5, 2, service="relay")
    client = Client(cloudwatch)
    watching = figures(client)
    watching.read(WATCHED, NOW)
    client.inner = None

    report = watching.read(WATCHED, NOW + 300)

    assert report.counts[Metric.EVENTS_STORED] == 5
    assert report.read_at == NOW
    assert report.trouble == "CloudWatch does not answer: EndpointConnectionError"
    watching.read(WATCHED, NOW + 310)
    assert len(client.requests) == 2  # and it is not asked by every look
    client.inner = cloudwatch
    assert watching.read(WATCHED, NOW + 600).trouble == ""


def test_with_no_figure_at_all_there_is_still_an_answer() -> None:
    report = figures(Client()).read(WATCHED, NOW)

    assert report.counts == {}
    assert "EndpointConnectionError" in report.trouble
