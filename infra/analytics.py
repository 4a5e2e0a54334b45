"""Scheduled exports of the tables, and Glue jobs over them: routes, credit limits, the report.

Even the export of an empty table takes minutes. So DynamoDB exports on a schedule, well before the
jobs start, and no worker is paid for waiting. The jobs can wait, so they run on spare capacity.
"""

from dataclasses import dataclass, field
from pathlib import Path

from aws_cdk import Annotations, ArnFormat, CfnOutput, Duration, Stack
from aws_cdk import aws_glue as glue
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_scheduler as scheduler
from constructs import Construct

from farthing.store.table import Table
from infra.deployment import Deployment
from infra.job_library import JobLibrary
from infra.records import removal_policy
from infra.shared import table_arn, told

SCRIPTS = Path(__file__).parents[1] / "glue_jobs"
EXPORTS, REPORT = "exports", "report"
_LOGS_WARNING = "@aws-cdk/aws-glue-alpha:unencryptedContinuousLogging"
_WRITE_ACTIONS = ("AbortMultipartUpload", "PutObject", "PutObjectAcl")
_OBJECT_ACTIONS = (*_WRITE_ACTIONS, "DeleteObject", "GetObject")
_ROUTES_ACTIONS = ("BatchWriteItem", "DeleteItem", "GetItem", "PutItem", "Query")


@dataclass(frozen=True)
class Job:
    """A script, its schedule (UTC, cron), tables to export for it, and its arguments."""

    script: str
    at: str
    exports: tuple[Table, ...]
    arguments: dict[str, str] = field(default_factory=dict)
    writes_routes: bool = False


def jobs(deployment: Deployment, owner: str, bucket: str) -> dict[str, Job]:
    ours = {"--OWNER": owner, "--TABLE_PREFIX": deployment.prefix}
    name = deployment.settings.get("name", "Farthing")
    return {
        "routes": Job(
            "rebuild_routes.py",
            f"cron(50 {_hours(deployment)} * * ? *)",
            (Table.EVENTS,),
            ours,
            True,
        ),
        "trust": Job("trust_scores.py", "cron(10 4 * * ? *)", (Table.EVENTS,), ours, True),
        "report": Job(
            "relay_report.py",
            "cron(30 4 * * ? *)",
            (Table.EVENTS, Table.LEDGER),
            {"--NAME": name, "--OUTPUT": f"s3://{bucket}/{REPORT}"},
        ),
    }


def _hours(deployment: Deployment) -> str:
    return "3" if deployment.export_hours == 24 else f"0/{deployment.export_hours}"


class AnalyticsStack(Stack):
    def __init__(
        self,
        scope: Construct,
        id: str,
        deployment: Deployment,
    ) -> None:
        super().__init__(scope, id, stack_name=f"{deployment.prefix}analytics")
        self._deployment = deployment
        owner = told(self, deployment, "public-key")
        self.bucket = self._bucket()
        self._library = JobLibrary(self, "JobLibrary")
        wanted = jobs(deployment, owner, self.bucket.bucket_name)
        for table in sorted({table for job in wanted.values() for table in job.exports}):
            self._export(table)
        self.jobs = {name: self._job(name, job) for name, job in wanted.items()}
        CfnOutput(self, "ReportUrl", value=f"s3://{self.bucket.bucket_name}/{REPORT}/report.html")

    def _arn(self, table: Table) -> str:
        return table_arn(self, self._deployment, table)

    def _bucket(self) -> s3.Bucket:
        """A bucket for exports, which are read once and expire, and for reports."""
        return s3.Bucket(
            self,
            "Exports",
            encryption=s3.BucketEncryption.S3_MANAGED,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            enforce_ssl=True,
            removal_policy=removal_policy(self._deployment),
            lifecycle_rules=[
                s3.LifecycleRule(prefix=f"{EXPORTS}/", expiration=Duration.days(7)),
                s3.LifecycleRule(abort_incomplete_multipart_upload_after=Duration.days(1)),
            ],
        )

    def _export(self, table: Table) -> None:
        role = iam.Role(
            self,
            f"{table.capitalize()}ExportRole",
            assumed_by=iam.ServicePrincipal("scheduler.amazonaws.com"),
        )
        _let_export(role, self._arn(table))
        _let_write(role, self.bucket, EXPORTS)
        scheduler.CfnSchedule(
            self,
            f"{table.capitalize()}Export",
            name=f"{self._deployment.prefix}export-{table}",
            schedule_expression=f"cron(0 {_hours(self._deployment)} * * ? *)",
            flexible_time_window=scheduler.CfnSchedule.FlexibleTimeWindowProperty(mode="OFF"),
            target=scheduler.CfnSchedule.TargetProperty(
                arn=f"arn:{self.partition}:scheduler:::aws-sdk:dynamodb:exportTableToPointInTime",
                role_arn=role.role_arn,
                input=self.to_json_string(
                    {
                        "TableArn": self._arn(table),
                        "S3Bucket": self.bucket.bucket_name,
                        "S3Prefix": f"{EXPORTS}/{table}",
                        "ExportFormat": "DYNAMODB_JSON",
                    }
                ),
            ),
        )

    def _job(self, name: str, job: Job) -> glue.PySparkFlexEtlJob:
        id = name.capitalize()
        full_name = f"{self._deployment.prefix}{name}"
        made = glue.PySparkFlexEtlJob(
            self,
            id,
            job_name=full_name,
            description=job.script,
            script=glue.Code.from_asset(str(SCRIPTS / job.script)),
            role=self._role(f"{id}Role", job),
            glue_version=glue.GlueVersion.V6_0,
            extra_python_files=[
                glue.Code.from_bucket(self._library.bucket, self._library.s3_object_key)
            ],
            worker_configuration=glue.WorkerConfiguration(
                number_of_workers=self._deployment.glue_workers, worker_type=glue.WorkerType.G_1X
            ),
            # A job that hangs must not run, and cost, all night.
            timeout=Duration.minutes(30),
            max_retries=1,
            max_concurrent_runs=1,
            # Glue would publish dozens of metrics that nobody reads, and each costs money.
            enable_metrics=False,
            enable_observability_metrics=False,
            default_arguments={**job.arguments, **self._source(job)},
        )
        Annotations.of(made).acknowledge_warning(
            _LOGS_WARNING, "CloudWatch's own encryption is enough"
        )
        self._library.grant_read(made.role)
        glue.CfnTrigger(
            self,
            f"{id}Trigger",
            name=full_name,
            type="SCHEDULED",
            schedule=job.at,
            start_on_creation=True,
            actions=[glue.CfnTrigger.ActionProperty(job_name=made.job_name)],
        )
        return made

    def _source(self, job: Job) -> dict[str, str]:
        arns = {f"--{table.value.upper()}_TABLE_ARN": self._arn(table) for table in job.exports}
        return {**arns, "--EXPORT_TO": f"s3://{self.bucket.bucket_name}/{EXPORTS}"}

    def _role(self, id: str, job: Job) -> iam.Role:
        role = iam.Role(self, id, assumed_by=iam.ServicePrincipal("glue.amazonaws.com"))
        _let_use(role, self.bucket, EXPORTS, REPORT)
        for table in job.exports:
            _let_export(role, self._arn(table))
        if job.writes_routes:
            role.add_to_policy(
                iam.PolicyStatement(
                    actions=[f"dynamodb:{action}" for action in _ROUTES_ACTIONS],
                    resources=[self._arn(Table.ROUTES)],
                )
            )
        role.add_to_policy(
            iam.PolicyStatement(
                actions=["logs:CreateLogGroup", "logs:CreateLogStream", "logs:PutLogEvents"],
                resources=[self.format_arn(service="logs", resource="log-group",
                                           resource_name="/aws-glue/*",
                                           arn_format=ArnFormat.COLON_RESOURCE_NAME)],
            )
        )  # fmt: skip
        return role


def _let_write(role: iam.Role, bucket: s3.IBucket, folder: str) -> None:
    """DynamoDB writes an export with its caller's rights. It neither reads nor deletes objects."""
    role.add_to_policy(
        iam.PolicyStatement(
            actions=[f"s3:{action}" for action in _WRITE_ACTIONS],
            resources=[bucket.arn_for_objects(f"{folder}/*")],
        )
    )


def _let_use(role: iam.Role, bucket: s3.IBucket, *folders: str) -> None:
    role.add_to_policy(
        iam.PolicyStatement(
            actions=["s3:GetBucketLocation", "s3:ListBucket"], resources=[bucket.bucket_arn]
        )
    )
    role.add_to_policy(
        iam.PolicyStatement(
            actions=[f"s3:{action}" for action in _OBJECT_ACTIONS],
            resources=[bucket.arn_for_objects(f"{folder}/*") for folder in folders],
        )
    )


def _let_export(role: iam.Role, table: str) -> None:
    role.add_to_policy(
        iam.PolicyStatement(actions=["dynamodb:ExportTableToPointInTime"], resources=[table])
    )
    role.add_to_policy(
        iam.PolicyStatement(actions=["dynamodb:DescribeExport"], resources=[f"{table}/export/*"])
    )
