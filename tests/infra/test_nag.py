"""cdk-nag's AwsSolutions rules: everything that they find is accepted here with its reason, and
nothing is accepted that they do not find."""

import json
import re
from pathlib import Path

import pytest

from tests.infra.conftest import Stacks

# (rule, construct path): why it is so. Both are regular expressions.
ACCEPTED = {
    (r"DDB3", r"Storage/Sessions"): "sessions die with their connections: nothing to restore",
    (r"SMG4", r"Storage/Key"): "the key is the agent's identity, known to its peers: a timer must"
    " not change it; README tells how the owner does",
    (r"SMG4", r"Edge/Front/OriginSecret"): "it says only which way a request has come; a deployment"
    " that makes it anew changes both of its sides",
    (r"IAM4\[.*AmazonAPIGatewayPushToCloudWatchLogs\]", r"Edge/Gateways/LogWriter"): "AWS's own"
    " policy for the account's one role that writes API Gateway's logs",
    (r"CFR1", r"Distribution"): "a public relay is for everyone",
    (r"CFR2", r"Distribution"): "writes are paid for and connections are rate-limited by the relay;"
    " a web ACL costs more than an idle relay",
    (r"CFR3", r"Distribution"): "requests are logged by the HTTP API behind it, sockets by metrics",
    (r"CFR4", r"Distribution"): "CloudFront's own name allows no other policy; with a domain it is"
    " TLS 1.2 of 2021",
    (r"L1", r""): "Python 3.13 is what the layer's wheels and the Glue jobs are built for",
    (r"APIG4", r"Relay/.*Route"): "a relay is public by its protocol: NIP-42, ILP tokens and the"
    " settlement engine's token are checked by the handlers",
    (r"IAM5\[Resource::.*@connections/\*\]", r"Relay/.*Role"): "connections have no names before"
    " they are made; the API and the stage are named",
    (r"IAM5\[Resource::\*\]", r"(Fanout|Sequencer|Push)Role"): "dynamodb:ListStreams knows no"
    " resource; reading is granted on the one stream",
    (r"IAM5\[Resource::\*\]", r"OperatorRole"): "cloudwatch:GetMetricData knows no resource",
    (r"SQS3", r"Failures"): "these are the dead-letter queues",
    (r"S1", r"Analytics/Exports"): "only the jobs use it, and CloudTrail knows of each",
    (r"IAM5\[Resource::<Exports.*/(exports|report)/\*\]", r"Analytics/.*Role"): "objects of the"
    " job's own folders",
    (r"IAM5\[Resource::.*/export/\*\]", r"Analytics/.*Role"): "an export's name is made when it"
    " is begun; the table is named",
    (r"IAM5\[Resource::.*log-group:/aws-glue/\*\]", r"Analytics/.*Role"): "Glue names its own logs",
    (r"IAM5\[(Action::s3:(GetObject|GetBucket|List)\*|Resource::.*cdk-hnb659fds-assets.*)\]",
     r"Analytics/.*Role"): "the job reads its script from the bucket of the bootstrap",
    (r"GL1", r"Analytics/"): "logs hold counts and refusals, of events that are public",
    (r"GL3", r"Analytics/"): "no job keeps bookmarks",
    (r"S1", r"Edge/Front/Page/Bucket"): "it holds files that everybody may read, by CloudFront",
    (r"IAM4\[.*AWSLambdaBasicExecutionRole\]", r"Page/Custom::CDKBucketDeployment"): "the CDK's own"
    " function that uploads the page's files at a deployment",
    (r"IAM5\[(Action::s3:(GetObject|GetBucket|List|DeleteObject|Abort)\*|Resource::.*:s3:::.*/\*)\]",
     r"Page/Custom::CDKBucketDeployment"): "it reads the bootstrap's bucket, and writes the page's",
}  # fmt: skip


@pytest.fixture(scope="module")
def findings(assemblies: Path, production: Stacks) -> list[tuple[str, str]]:
    report = json.loads((assemblies / "production/validation-report.json").read_text())
    return [
        (violation["ruleName"].removeprefix("AwsSolutions-"), construct["constructPath"])
        for plugin in report["pluginReports"]
        for violation in plugin["violations"]
        for construct in violation["violatingConstructs"]
    ]


def reason_for(rule: str, path: str) -> str | None:
    for (known, where), reason in ACCEPTED.items():
        if re.fullmatch(known, rule) and re.search(where, path):
            return reason
    return None


def test_the_rules_are_run(findings: list[tuple[str, str]]) -> None:
    assert ("DDB3", "FarthingStorage/Sessions/Resource") in findings


def test_every_finding_is_explained(findings: list[tuple[str, str]]) -> None:
    assert [each for each in findings if reason_for(*each) is None] == []


def test_nothing_is_accepted_that_is_not_found(findings: list[tuple[str, str]]) -> None:
    used = {reason_for(*each) for each in findings}
    assert {reason for reason in ACCEPTED.values() if reason not in used} == set()
