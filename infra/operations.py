"""Operations: alarms on anything that may lose money or events, dashboards, and the brake."""

from collections.abc import Sequence

from aws_cdk import Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from farthing.ports.meter import Metric, metric_namespace
from farthing.store.table import Table
from farthing.surface import QUEUES, STREAMS, functions
from infra.brake import Brake, let_publish
from infra.deployment import Deployment

_FIVE_MINUTES = Duration.minutes(5)
_OPERATOR = cloudwatch.ComparisonOperator
_MISSING = cloudwatch.TreatMissingData
# The functions for whose answers a client or a peer waits.
_WAITED_FOR = ("connect", "event", "ilp", "info", "negentropy", "req")


class Metrics:
    """The metrics of a deployment's functions, queues and tables, and of the relay itself."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def relay(
        self, metric: Metric, statistic: str = "Sum", period: Duration = _FIVE_MINUTES
    ) -> cloudwatch.Metric:
        """A metric that the relay's meter publishes."""
        return cloudwatch.Metric(
            namespace=metric_namespace(self._prefix),
            metric_name=metric.value,
            dimensions_map={"service": "relay"},
            statistic=statistic,
            period=period,
        )

    def function(self, name: str, metric: str, statistic: str = "Sum") -> cloudwatch.Metric:
        return self._of("AWS/Lambda", "FunctionName", name, metric, statistic)

    def queue(self, name: str, metric: str, statistic: str = "Maximum") -> cloudwatch.Metric:
        return self._of("AWS/SQS", "QueueName", name, metric, statistic)

    def table(self, table: Table, metric: str) -> cloudwatch.Metric:
        return self._of("AWS/DynamoDB", "TableName", table.value, metric, "Sum")

    def _of(
        self, namespace: str, dimension: str, name: str, metric: str, statistic: str
    ) -> cloudwatch.Metric:
        return cloudwatch.Metric(
            namespace=namespace,
            metric_name=metric,
            dimensions_map={dimension: f"{self._prefix}{name}"},
            statistic=statistic,
            period=_FIVE_MINUTES,
        )


class OperationsStack(Stack):
    def __init__(self, scope: Construct, id: str, deployment: Deployment) -> None:
        super().__init__(scope, id, stack_name=f"{deployment.prefix}operations")
        self._metrics = Metrics(deployment.prefix)
        self.topic = sns.Topic(self, "Alarms", enforce_ssl=True)
        let_publish(self.topic, "cloudwatch.amazonaws.com")
        if deployment.alarm_email:
            self.topic.add_subscription(subscriptions.EmailSubscription(deployment.alarm_email))
        self._watch_streams()
        self._watch_queues()
        self._watch_functions()
        self._watch_tables()
        self._watch_money(deployment)
        if deployment.analytics:
            self._watch_jobs(deployment)
        self._dashboards(deployment)
        if deployment.monthly_budget or deployment.hourly_messages:
            Brake(self, "Brake", deployment, self.topic)

    def _alarm(
        self,
        id: str,
        metric: cloudwatch.IMetric,
        about: str,
        *,
        threshold: float = 0,
        operator: cloudwatch.ComparisonOperator = _OPERATOR.GREATER_THAN_THRESHOLD,
        periods: int = 1,
        missing: cloudwatch.TreatMissingData = _MISSING.NOT_BREACHING,
    ) -> None:
        alarm = cloudwatch.Alarm(
            self,
            id,
            metric=metric,
            alarm_description=about,
            threshold=threshold,
            comparison_operator=operator,
            evaluation_periods=periods,
            treat_missing_data=missing,
        )
        alarm.add_alarm_action(actions.SnsAction(self.topic))

    def _watch_streams(self) -> None:
        for stream in STREAMS:
            name = stream.function
            self._watch_failures(
                stream.failures,
                f"{name} has given up on records: fix the cause, then run farthing redrive",
            )
            self._alarm(
                f"{name.capitalize()}Behind",
                self._metrics.function(name, "IteratorAge", "Maximum"),
                f"{name} is more than two minutes behind its stream (in milliseconds)",
                threshold=120_000,
            )

    def _watch_queues(self) -> None:
        for queue in QUEUES:
            self._watch_failures(
                queue.failures,
                f"{queue.name}: messages have failed {queue.attempts} times and were given up",
            )
            self._alarm(
                f"{queue.name.capitalize()}Behind",
                self._metrics.queue(queue.name, "ApproximateAgeOfOldestMessage"),
                f"messages of {queue.name} wait five minutes longer than they should (in seconds)",
                # The age of a message counts from its sending, with the delay.
                threshold=300 + queue.delay,
            )

    def _watch_failures(self, name: str, about: str) -> None:
        self._alarm(
            "".join(word.capitalize() for word in name.split("-")),
            self._metrics.queue(name, "ApproximateNumberOfMessagesVisible"),
            about,
        )

    def _watch_functions(self) -> None:
        """One metric for all functions of the region: an alarm is billed for each metric."""
        for name, about in {
            "Errors": "functions fail: the errors dashboard shows which",
            "Throttles": "calls of functions are throttled: the concurrency is used up",
        }.items():
            metric = cloudwatch.Metric(
                namespace="AWS/Lambda", metric_name=name, statistic="Sum", period=_FIVE_MINUTES
            )
            self._alarm(f"Function{name}", metric, about, threshold=5)
        self._alarm(
            "InternalErrors",
            self._metrics.relay(Metric.INTERNAL_ERRORS),
            "requests end with internal errors",
            threshold=3,
        )

    def _watch_tables(self) -> None:
        for table in Table:
            self._alarm(
                f"{table.value.capitalize()}Throttled",
                self._metrics.table(table, "WriteThrottleEvents"),
                f"the {table} table throttles writes for longer than retries last",
                threshold=100,
                periods=2,
            )

    def _watch_jobs(self, deployment: Deployment) -> None:
        """Notify the operator of failed jobs: without rebuilds, routes become outdated. An event
        rule is free, and an alarm is not."""
        events.Rule(
            self,
            "JobFailed",
            event_pattern=events.EventPattern(
                source=["aws.glue"],
                detail_type=["Glue Job State Change"],
                detail={
                    "jobName": events.Match.prefix(deployment.prefix),
                    "state": ["FAILED", "TIMEOUT"],
                },
            ),
            targets=[targets.SnsTopic(self.topic)],
        )

    def _watch_money(self, deployment: Deployment) -> None:
        self._alarm(
            "HoldsUnreleased",
            self._metrics.function("sweeper", "Invocations"),
            "the sweeper does not run: holds of expired packets are not released",
            threshold=1,
            operator=_OPERATOR.LESS_THAN_THRESHOLD,
            periods=3,
            missing=_MISSING.BREACHING,
        )
        self._alarm(
            "HoldsAbandoned",
            self._metrics.relay(Metric.HOLDS_RELEASED),
            "many packets got no answer, and only the sweeper released their holds",
            threshold=20,
        )
        self._watch_revenue(deployment)

    def _watch_revenue(self, deployment: Deployment) -> None:
        day = self._metrics.relay(Metric.REVENUE, period=Duration.days(1))
        if deployment.least_daily_revenue:
            self._alarm(
                "RevenueLow",
                day,
                "a day's revenue is below least_daily_revenue",
                threshold=deployment.least_daily_revenue,
                operator=_OPERATOR.LESS_THAN_THRESHOLD,
                missing=_MISSING.BREACHING,
            )
        drop = cloudwatch.AnomalyDetectionAlarm(
            self,
            "RevenueDrop",
            metric=self._metrics.relay(Metric.REVENUE, period=Duration.hours(1)),
            alarm_description="revenue is far below its usual value at this time",
            std_devs=3,
            comparison_operator=_OPERATOR.LESS_THAN_LOWER_THRESHOLD,
            evaluation_periods=3,
            # The sweeper publishes at least 0 every minute, so figures are missing only if the
            # relay does not run.
            treat_missing_data=_MISSING.IGNORE,
        )
        drop.add_alarm_action(actions.SnsAction(self.topic))

    def _dashboards(self, deployment: Deployment) -> None:
        """Two dashboards, because only a dashboard with at most fifty metrics is free."""
        relay, function, queue = self._metrics.relay, self._metrics.function, self._metrics.queue
        board = cloudwatch.Dashboard(self, "Board", dashboard_name=f"{deployment.prefix}relay")
        board.add_widgets(
            _graph("Money", [relay(Metric.REVENUE), relay(Metric.PRICE)]),
            _graph("Events", [
                relay(Metric.EVENTS_STORED), relay(Metric.EVENTS_DELIVERED),
                relay(Metric.EVENTS_REFUSED),
            ]),
            _graph("Packets", [
                relay(Metric.PACKETS_FULFILLED), relay(Metric.PACKETS_REJECTED),
                relay(Metric.PACKET_MILLISECONDS, "p99"),
            ]),
        )  # fmt: skip
        board.add_widgets(
            _graph("Streams behind (ms)", [
                function(stream.function, "IteratorAge", "Maximum") for stream in STREAMS
            ]),
            _graph("Given up", [
                queue(each.failures, "ApproximateNumberOfMessagesVisible")
                for each in (*STREAMS, *QUEUES)
            ]),
            _graph("Waiting in queues", [
                queue(each.name, "ApproximateNumberOfMessagesVisible") for each in QUEUES
            ]),
        )  # fmt: skip
        board.add_widgets(
            _graph("Duration p99 (ms)", [
                function(name, "Duration", "p99") for name in sorted(_WAITED_FOR)
            ]),
            _graph("Read units", self._units("ConsumedReadCapacityUnits")),
            _graph("Write units", self._units("ConsumedWriteCapacityUnits")),
        )  # fmt: skip
        errors = cloudwatch.Dashboard(
            self, "ErrorsBoard", dashboard_name=f"{deployment.prefix}errors"
        )
        errors.add_widgets(
            _graph("Errors", [function(name, "Errors") for name in sorted(functions())], width=24)
        )

    def _units(self, name: str) -> list[cloudwatch.IMetric]:
        return [self._metrics.table(table, name) for table in Table]


def _graph(
    title: str, metrics: Sequence[cloudwatch.IMetric], width: int = 8
) -> cloudwatch.GraphWidget:
    return cloudwatch.GraphWidget(title=title, left=metrics, width=width)
