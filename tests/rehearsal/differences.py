"""What the emulator cannot do, and what the rehearsal does instead: all of it, in one place. The
docs/aws.md says the same, and a test holds it to this."""

from typing import NamedTuple


class Difference(NamedTuple):
    what: str
    why: str
    instead: str


_TLS = Difference(
    "policies of queues, topics and buckets that demand TLS",
    "the emulator speaks plain HTTP here, and does enforce them",
    "left out of the templates; tests see that they are there",
)

# Resources that are left out of the app, by type or by path.
LEFT_OUT = {
    "AWS::SQS::QueuePolicy": _TLS,
    "AWS::SNS::TopicPolicy": _TLS,
    "AWS::S3::BucketPolicy": _TLS,
    "AWS::ApiGatewayV2::RouteResponse": Difference(
        "route responses",
        "the emulator does not know them, and returns a handler's body without being told",
        "left out of the templates; tests have a stand-in that returns empty frames, as AWS does",
    ),
    "AWS::Budgets::Budget": Difference(
        "the monthly budget",
        "the emulator's CloudFormation does not know it, and nothing there costs anything",
        "left out of the templates; the brake that it would pull is pulled by hand",
    ),
    "FarthingOperations/RevenueDrop": Difference(
        "the alarm on a drop of revenue",
        "anomaly detection is metric math, which the emulator's alarms do not take",
        "left out of the templates",
    ),
}

OTHERS = (
    Difference(
        "the page for people",
        "its files are uploaded by a function of the CDK's own, which the emulator cannot run",
        "deployed with `page=false`; tests look at the templates, and at the page on one machine",
    ),
    Difference(
        "CloudFront",
        "the distribution is made, but the emulator serves no sockets through it",
        "clients use the two APIs by their own URLs, which do not ask for CloudFront's header here;"
        " tests run the script that chooses the origin and the function that checks the header",
    ),
    Difference(
        "peers on the internet, by TLS",
        "the other agents of the rehearsal run on this machine",
        "deployed with `allow_private_hosts`",
    ),
    Difference(
        "functions that are updated while they run",
        "the emulator ends a call that is under way, answered with 502; AWS lets it finish",
        "the emulator is started with a change that lets it finish, and payers repeat a packet that"
        " was not answered",
    ),
    Difference(
        "`$request.body.[0]`",
        "the emulator selects routes by fields of objects only: every message goes to `$default`",
        "each verb's own function is also invoked as its route would invoke it",
    ),
    Difference(
        "messages of a connection side by side",
        "the emulator takes them one after the other",
        "the tests of handlers let them overtake each other",
    ),
    Difference(
        "the bootstrap's roles",
        "the emulator does not know a condition in them",
        "the CLI deploys with its own credentials",
    ),
    Difference(
        "a reference to a secret",
        "in the emulator it is the secret's name, in AWS its ARN",
        "the templates ask for the attribute that is the ARN",
    ),
    Difference(
        "halved batches, partial failures and a number of attempts on streams",
        "the emulator repeats a whole batch until it is too old",
        "tests feed the handlers as Lambda would: tests/functions/test_poison.py",
    ),
    Difference(
        "exports of tables",
        "the emulator reports them as done and writes nothing",
        "the rehearsal writes the export itself, in DynamoDB's form",
    ),
    Difference(
        "Glue's Spark",
        "the emulator runs it in Docker only",
        "the deployed script runs with the deployed zip and arguments on local Spark",
    ),
    Difference(
        "throttling",
        "the emulator's tables have no limits",
        "a gate between functions and tables turns requests away as DynamoDB does",
    ),
    Difference(
        "arm64 and Python 3.13",
        "functions run on this machine and on its Python",
        "the layer is built for both; `make layer` builds Lambda's",
    ),
)


def table() -> str:
    """For docs/aws.md."""
    rows = dict.fromkeys([*LEFT_OUT.values(), *OTHERS])
    lines = [f"| {each.what} | {each.why} | {each.instead} |" for each in rows]
    return "\n".join(["| what | why | instead |", "|---|---|---|", *lines])
