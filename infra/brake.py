"""A bound on spending: a monthly budget whose end stops the functions that cost money.

AWS's own budget actions attach policies or stop instances, neither of which ends a Lambda bill. So
the budget tells a topic, and the topic calls a function that takes the others' concurrency away.
"""

import json
from collections.abc import Mapping

from aws_cdk import Duration, Stack
from aws_cdk import aws_budgets as budgets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as awslambda
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from farthing.surface import RUNS_WHEN_BRAKED
from infra.deployment import Deployment
from infra.functions import FOLDER, NOT_CODE
from infra.records import log_group

_WARN_PERCENT = 80


class Brake(Construct):
    def __init__(
        self,
        scope: Construct,
        id: str,
        deployment: Deployment,
        functions: Mapping[str, awslambda.IFunction],
        told: sns.ITopic,
    ) -> None:
        super().__init__(scope, id)
        self._deployment = deployment
        self.function = self._function(
            {name: each for name, each in functions.items() if name not in RUNS_WHEN_BRAKED}
        )
        self.spent = sns.Topic(self, "Spent", enforce_ssl=True)
        self.spent.add_subscription(subscriptions.LambdaSubscription(self.function))
        for topic in (self.spent, told):
            _let_budgets_publish(topic)
        self._budget(told)

    def _function(self, braked: Mapping[str, awslambda.IFunction]) -> awslambda.Function:
        name = f"{self._deployment.prefix}brake"
        group = log_group(self, "Log", self._deployment, f"/aws/lambda/{name}")
        role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"))
        group.grant_write(role)
        role.add_to_policy(
            iam.PolicyStatement(
                actions=["lambda:DeleteFunctionConcurrency", "lambda:PutFunctionConcurrency"],
                resources=[each.function_arn for each in braked.values()],
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
            description="The budget is spent: stop the functions that spend",
            code=awslambda.Code.from_asset(str(FOLDER / "brake"), exclude=NOT_CODE),
            handler="handler.handler",
            runtime=awslambda.Runtime.PYTHON_3_13,
            architecture=awslambda.Architecture.ARM_64,
            role=role,
            log_group=group,
            timeout=Duration.minutes(1),
            environment={"FARTHING_BRAKED": json.dumps(bounds)},
        )

    def _budget(self, told: sns.ITopic) -> None:
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
                _notification("FORECASTED", 100, told),
                _notification("ACTUAL", _WARN_PERCENT, told),
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


def _let_budgets_publish(topic: sns.ITopic) -> None:
    topic.add_to_resource_policy(
        iam.PolicyStatement(
            actions=["sns:Publish"],
            principals=[iam.ServicePrincipal("budgets.amazonaws.com")],
            resources=[topic.topic_arn],
            conditions={"StringEquals": {"aws:SourceAccount": Stack.of(topic).account}},
        )
    )
