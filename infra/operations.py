"""Watching: alarms on what would cost money or events, a dashboard, and the brake."""

from collections.abc import Sequence

from aws_cdk import Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from farthing.ports.meter import Metric
from farthing.store.table import Table
from infra.brake import Brake
from infra.deployment import Deployment
from infra.relay import RelayStack
from infra.storage import StorageStack

_FIVE_MINUTES = Duration.minutes(5)
_OPERATOR = cloudwatch.ComparisonOperator
_MISSING = cloudwatch.TreatMissingData


def relay_metric(
    metric: Metric, statistic: str = "Sum", period: Duration = _FIVE_MINUTES
) -> cloudwatch.Metric:
    """As the meter writes it."""
    return cloudwatch.Metric(
        namespace="Farthing",
        metric_name=metric.value,
        dimensions_map={"service": "relay"},
        statistic=statistic,
        period=period,
    )


class OperationsStack(Stack):
    def __init__(
        self,
        scope: Construct,
        id: str,
        deployment: Deployment,
        storage: StorageStack,
        relay: RelayStack,
    ) -> None:
        super().__init__(scope, id)
        self._relay = relay
        self._storage = storage
        self.topic = sns.Topic(self, "Alarms", enforce_ssl=True)
        _let_alarms_publish(self.topic)
        if deployment.alarm_email:
            self.topic.add_subscription(subscriptions.EmailSubscription(deployment.alarm_email))
        self._watch_streams()
        self._watch_functions()
        self._watch_tables()
        self._watch_money(deployment)
        if deployment.analytics:
            self._watch_jobs(deployment)
        self._dashboard(deployment)
        if deployment.monthly_budget:
            Brake(self, "Brake", deployment, relay.functions, self.topic)

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
        for name, queue in self._relay.failures.items():
            self._alarm(
                f"{name.capitalize()}Failures",
                queue.metric_approximate_number_of_messages_visible(period=_FIVE_MINUTES),
                f"{name} has given up on records: mend the cause, then farthing redrive",
            )
            self._alarm(
                f"{name.capitalize()}Behind",
                self._relay.functions[name].metric(
                    "IteratorAge", statistic="Maximum", period=_FIVE_MINUTES
                ),
                f"{name} is minutes behind its stream, in milliseconds",
                threshold=120_000,
            )

    def _watch_functions(self) -> None:
        """All functions of the region by one metric each: an alarm is paid for by the metric."""
        for name, about in {
            "Errors": "functions fail: the dashboard shows which",
            "Throttles": "functions are turned away: the concurrency is used up",
        }.items():
            metric = cloudwatch.Metric(
                namespace="AWS/Lambda", metric_name=name, statistic="Sum", period=_FIVE_MINUTES
            )
            self._alarm(f"Function{name}", metric, about, threshold=5)
        self._alarm(
            "InternalErrors",
            relay_metric(Metric.INTERNAL_ERRORS),
            "clients are told of internal errors",
            threshold=3,
        )

    def _watch_tables(self) -> None:
        for table, made in self._storage.tables.items():
            self._alarm(
                f"{table.value.capitalize()}Throttled",
                made.metric("WriteThrottleEvents", statistic="Sum", period=_FIVE_MINUTES),
                f"the {table} table turns writes away for longer than retries last",
                threshold=100,
                periods=2,
            )

    def _watch_jobs(self, deployment: Deployment) -> None:
        """Who is told by an event needs no metric: routes that are no longer rebuilt go stale."""
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
        sweeper = self._relay.functions["sweeper"]
        self._alarm(
            "HoldsUnreleased",
            sweeper.metric_invocations(period=_FIVE_MINUTES),
            "the sweeper does not run: held balances stay held",
            threshold=1,
            operator=_OPERATOR.LESS_THAN_THRESHOLD,
            periods=3,
            missing=_MISSING.BREACHING,
        )
        self._alarm(
            "HoldsAbandoned",
            relay_metric(Metric.HOLDS_RELEASED),
            "many packets ended without an answer, and only the sweeper released their holds",
            threshold=20,
        )
        self._watch_revenue(deployment)

    def _watch_revenue(self, deployment: Deployment) -> None:
        day = relay_metric(Metric.REVENUE, period=Duration.days(1))
        if deployment.least_daily_revenue:
            self._alarm(
                "RevenueLow",
                day,
                "a day's revenue is below what it should be",
                threshold=deployment.least_daily_revenue,
                operator=_OPERATOR.LESS_THAN_THRESHOLD,
                missing=_MISSING.BREACHING,
            )
        drop = cloudwatch.AnomalyDetectionAlarm(
            self,
            "RevenueDrop",
            metric=relay_metric(Metric.REVENUE, period=Duration.hours(1)),
            alarm_description="revenue is far below what it was at this time before",
            std_devs=3,
            comparison_operator=_OPERATOR.LESS_THAN_LOWER_THRESHOLD,
            evaluation_periods=3,
            # The sweeper counts nought every minute: only a relay that is not there is silent.
            treat_missing_data=_MISSING.IGNORE,
        )
        drop.add_alarm_action(actions.SnsAction(self.topic))

    def _dashboard(self, deployment: Deployment) -> None:
        functions = self._relay.functions
        board = cloudwatch.Dashboard(self, "Board", dashboard_name=f"{deployment.prefix}relay")
        graph = _graph
        board.add_widgets(
            graph("Money", [relay_metric(Metric.REVENUE), relay_metric(Metric.PRICE)]),
            graph("Events", [
                relay_metric(Metric.EVENTS_STORED), relay_metric(Metric.EVENTS_DELIVERED),
                relay_metric(Metric.EVENTS_REFUSED),
            ]),
            graph("Packets", [
                relay_metric(Metric.PACKETS_FULFILLED), relay_metric(Metric.PACKETS_REJECTED),
                relay_metric(Metric.PACKET_MILLISECONDS, "p99"),
            ]),
        )  # fmt: skip
        board.add_widgets(
            graph("Streams behind (ms)", [
                functions[name].metric("IteratorAge", statistic="Maximum")
                for name in self._relay.failures
            ]),
            graph("Given up", [
                queue.metric_approximate_number_of_messages_visible()
                for queue in self._relay.failures.values()
            ]),
            graph("Errors", [function.metric_errors() for function in functions.values()]),
        )  # fmt: skip
        board.add_widgets(
            graph("Duration p99 (ms)", [
                function.metric_duration(statistic="p99") for function in functions.values()
            ]),
            graph("Read units", _units(self._storage, "ConsumedReadCapacityUnits")),
            graph("Write units", _units(self._storage, "ConsumedWriteCapacityUnits")),
        )  # fmt: skip


def _let_alarms_publish(topic: sns.Topic) -> None:
    """A topic that has a policy at all, and one against plain HTTP is one, takes nothing more from
    the account's own alarms unless it says so."""
    topic.add_to_resource_policy(
        iam.PolicyStatement(
            actions=["sns:Publish"],
            principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
            resources=[topic.topic_arn],
            conditions={"StringEquals": {"aws:SourceAccount": Stack.of(topic).account}},
        )
    )


def _units(storage: StorageStack, name: str) -> list[cloudwatch.IMetric]:
    return [storage.tables[table].metric(name, statistic="Sum") for table in Table]


def _graph(title: str, metrics: Sequence[cloudwatch.IMetric]) -> cloudwatch.GraphWidget:
    return cloudwatch.GraphWidget(title=title, left=metrics, width=8)
