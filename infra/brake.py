"""A limit on spending: when a monthly budget is spent, the functions that cost money are stopped.

AWS's own budget actions attach policies or stop instances, and neither stops Lambda's costs. So the
budget notifies a topic, and the topic calls a function that sets the others' concurrency to 0. A
budget learns of spending hours later. Messages and requests are counted within minutes, so alarms
on their number notify the same topic.
"""

import json
from collections.abc import Sequence

from aws_cdk import Duration, Stack
from aws_cdk import aws_budgets as budgets
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as awslambda
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from farthing.surface import RUNS_WHEN_BRAKED, functions
from infra.deployment import Deployment
from infra.functions import FOLDER, NOT_CODE
from infra.gateway import STAGE
from infra.records import log_group
from infra.shared import function_arn, told

_WARN_PERCENT = 80


class Brake(Construct):
    def __init__(
        self,
        scope: Construct,
        id: str,
        deployment: Deployment,
        operator: sns.ITopic,
    ) -> None:
        super().__init__(scope, id)
        self._deployment = deployment
        self.function = self._function(sorted(functions() - RUNS_WHEN_BRAKED))
        self.spent = sns.Topic(self, "Spent", enforce_ssl=True)
        self.spent.add_subscription(subscriptions.LambdaSubscription(self.function))
        let_publish(self.spent, "cloudwatch.amazonaws.com")
        if deployment.monthly_budget:
            for topic in (self.spent, operator):
                let_publish(topic, "budgets.amazonaws.com")
            self._budget(operator)
        if deployment.hourly_messages:
            self._watch("Messages", "MessageCount", "socket-api-id", operator, Stage=STAGE)
            self._watch("Requests", "Count", "web-api-id", operator)

    def _watch(
        self, id: str, metric: str, api: str, operator: sns.ITopic, **dimensions: str
    ) -> None:
        most = self._deployment.hourly_messages
        alarm = cloudwatch.Alarm(
            self,
            id,
            metric=cloudwatch.Metric(
                namespace="AWS/ApiGateway",
                metric_name=metric,
                dimensions_map={"ApiId": told(Stack.of(self), self._deployment, api), **dimensions},
                statistic="Sum",
                period=Duration.hours(1),
            ),
            alarm_description=f"{id.lower()} of an hour are over {most}: the relay is stopped",
            threshold=most,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD,
            evaluation_periods=1,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
        )
        for topic in (self.spent, operator):
            alarm.add_alarm_action(actions.SnsAction(topic))

    def _function(self, braked: Sequence[str]) -> awslambda.Function:
        name = f"{self._deployment.prefix}brake"
        group = log_group(self, "Log", self._deployment, f"/aws/lambda/{name}")
        role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        group.grant_write(role)
        role.add_to_policy(
            iam.PolicyStatement(
                actions=["lambda:DeleteFunctionConcurrency", "lambda:PutFunctionConcurrency"],
                resources=[function_arn(Stack.of(self), self._deployment, each) for each in braked],
            )
        )
        bounds = {
            f"{self._deployment.prefix}{each}": self._deployment.concurrency.get(each)
            for each in braked
        }
        return awslambda.Function(
            self,
            "Function",
            function_name=name,
            description="Stop the functions that spend money when the budget is spent",
            code=awslambda.Code.from_asset(str(FOLDER / "brake"), exclude=NOT_CODE),
            handler="handler.handler",
            runtime=awslambda.Runtime.PYTHON_3_13,
            architecture=awslambda.Architecture.ARM_64,
            role=role,
            log_group=group,
            timeout=Duration.minutes(1),
            environment={"FARTHING_BRAKED": json.dumps(bounds)},
        )

    def _budget(self, operator: sns.ITopic) -> None:
        budgets.CfnBudget(
            self,
            "Budget",
            budget=budgets.CfnBudget.BudgetDataProperty(
                budget_name=f"{self._deployment.prefix}monthly",
                budget_type="COST",
                time_unit="MONTHLY",
                budget_limit=budgets.CfnBudget.SpendProperty(
                    amount=self._deployment.monthly_budget, unit="USD"
                ),
            ),
            notifications_with_subscribers=[
                _notification("FORECASTED", 100, operator),
                _notification("ACTUAL", _WARN_PERCENT, operator),
                _notification("ACTUAL", 100, self.spent),
            ],
        )


def _notification(
    kind: str, percent: int, topic: sns.ITopic
) -> budgets.CfnBudget.NotificationWithSubscribersProperty:
    return budgets.CfnBudget.NotificationWithSubscribersProperty(
        notification=budgets.CfnBudget.NotificationProperty(
            comparison_operator="GREATER_THAN", notification_type=kind, threshold=percent
        ),
        subscribers=[
            budgets.CfnBudget.SubscriberProperty(address=topic.topic_arn, subscription_type="SNS")
        ],
    )


def let_publish(topic: sns.ITopic, service: str) -> None:
    """Let the account's alarms or budgets publish to a topic. The policy against plain HTTP has
    replaced the default policy, which allowed it."""
    topic.add_to_resource_policy(
        iam.PolicyStatement(
            actions=["sns:Publish"],
            principals=[iam.ServicePrincipal(service)],
            resources=[topic.topic_arn],
            conditions={"StringEquals": {"aws:SourceAccount": Stack.of(topic).account}},
        )
    )
