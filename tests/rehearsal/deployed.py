"""What was deployed: its addresses, AWS's clients for it, and the `farthing` command on it."""

import json
import os
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import boto3
import urllib3
from botocore.config import Config

from farthing.aws.outbound import HttpOutbound
from farthing.connector.client import (
    RelayTerms,
    prepare_payment,
    send_payment,
    terms_from_information,
    utc_now,
)
from farthing.ilp.packet import Fulfill, Reject
from farthing.nostr.events import parse_event
from farthing.ports.hosts import ANYWHERE
from tests.e2e.authors import Author
from tests.e2e.client import Background, RawClient
from tests.rehearsal.emulator import CREDENTIALS
from tests.rehearsal.places import CACHE, PYTHONPATH, Failed, environment, run

PREFIX = "farthing-"
# The emulator loses a request now and then: better asked again soon than waited for. A call of a
# function is waited for, and not repeated.
_QUICK = Config(read_timeout=10, retries={"mode": "standard", "total_max_attempts": 6})
_FUNCTIONS = Config(read_timeout=310, retries={"total_max_attempts": 1})
T = TypeVar("T")
EventDict = dict[str, Any]


def until(what: str, look: Callable[[], T], seconds: float = 120) -> T:
    """Look again and again until there is something to see."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(0.1)
    raise Failed(f"after {seconds:.0f} s still not: {what}")


class Patient(Background):
    """Functions start slowly on a busy machine: whoever waits for one waits for a minute."""

    def run(self, coroutine: Coroutine[Any, Any, T], seconds: float = 60) -> T:
        return super().run(coroutine, max(seconds, 60))


@dataclass
class Deployed:
    """`token` is that of the peer who pays in the rehearsal, once there is one."""

    emulator: str
    outputs: Mapping[str, Mapping[str, str]]
    background: Background
    token: str = ""

    @property
    def relay_url(self) -> str:
        return self.outputs[f"{PREFIX}edge"]["RelayUrl"]

    @property
    def web_url(self) -> str:
        return self.outputs[f"{PREFIX}edge"]["WebUrl"]

    @property
    def pubkey(self) -> str:
        return self.outputs[f"{PREFIX}relay"]["PublicKey"]

    @property
    def ilp_address(self) -> str:
        return self.outputs[f"{PREFIX}relay"]["IlpAddress"]

    def client(
        self, service: str, endpoint: str = "", config: Config = _QUICK, role: str = ""
    ) -> Any:
        """As the account's root, or as one of its roles."""
        who = self.credentials_of(role) if role else CREDENTIALS
        return boto3.client(
            service,
            endpoint_url=endpoint or self.emulator,
            region_name=who["AWS_REGION"],
            aws_access_key_id=who["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=who["AWS_SECRET_ACCESS_KEY"],
            aws_session_token=who.get("AWS_SESSION_TOKEN"),
            config=config,
        )

    def credentials_of(self, role: str) -> dict[str, str]:
        """What whoever runs under a role has in its environment."""
        assumed = self.client("sts").assume_role(RoleArn=role, RoleSessionName="rehearsal")
        found = assumed["Credentials"]
        return {
            **CREDENTIALS,
            "AWS_ACCESS_KEY_ID": found["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": found["SecretAccessKey"],
            "AWS_SESSION_TOKEN": found["SessionToken"],
        }

    def role_of(self, function: str) -> str:
        found = self.client("lambda").get_function_configuration(FunctionName=PREFIX + function)
        role: str = found["Role"]
        return role

    def stacks(self) -> list[str]:
        found = self.client("cloudformation").describe_stacks()["Stacks"]
        names: list[str] = [each["StackName"] for each in found]
        return [name for name in names if name.startswith(PREFIX)]

    def resources(self) -> int:
        client = self.client("cloudformation")
        return sum(
            len(client.describe_stack_resources(StackName=name)["StackResources"])
            for name in self.stacks()
        )

    def invoke(self, name: str, event: object) -> Any:
        """Call a function; what it returns."""
        answer = self.client("lambda", config=_FUNCTIONS).invoke(
            FunctionName=f"{PREFIX}{name}", Payload=json.dumps(event).encode()
        )
        payload = json.loads(answer["Payload"].read() or b"null")
        if "FunctionError" in answer:
            raise Failed(f"{name} failed: {payload}")
        return payload

    def items(self, table: str) -> list[dict[str, Any]]:
        """All items of a table, in DynamoDB's own form."""
        pages = self.client("dynamodb").get_paginator("scan").paginate(TableName=PREFIX + table)
        return [item for page in pages for item in page["Items"]]

    def farthing(self, *arguments: str) -> str:
        """`farthing --cloud ...`, as an operator would call it."""
        return run(
            [sys.executable, "-m", "infra.local", "--cloud", *arguments],
            cwd=CACHE,
            env=environment(
                **CREDENTIALS, AWS_ENDPOINT_URL=self.emulator, PYTHONPATH=PYTHONPATH,
                FARTHING_DATA=str(CACHE / "operator"), COLUMNS=os.environ.get("COLUMNS", "100"),
            ),
        )  # fmt: skip

    # As clients see it

    def http(self, method: str, path: str, body: object = None, **headers: str) -> Any:
        return urllib3.request(
            method, self.web_url + path, body=None if body is None else json.dumps(body).encode(),
            headers=headers, retries=False, timeout=60,
        )  # fmt: skip

    def information(self) -> dict[str, Any]:
        answer = self.http("GET", "/", Accept="application/nostr+json")
        document: dict[str, Any] = answer.json()
        return document

    def terms(self) -> RelayTerms:
        return terms_from_information(self.information())

    @contextmanager
    def connected(self) -> Iterator[RawClient]:
        client = RawClient(self.background, self.relay_url)
        try:
            yield client
        finally:
            client.close()

    def pay(
        self, author: Author, event: EventDict, amount: int | None = None, token: str | None = None
    ) -> Fulfill | Reject:
        """Have an event stored by ILP, at the price of the moment unless told otherwise."""
        terms = self.terms()
        secret = bytes.fromhex(author.secret)
        payment = prepare_payment(parse_event(event), secret, terms, utc_now(), amount)
        shown = self.token if token is None else token
        return send_payment(HttpOutbound(ANYWHERE), terms.endpoint, shown, payment)

    def publish(self, author: Author, *events: EventDict) -> None:
        for event in events:
            reply = self.pay(author, event)
            assert isinstance(reply, Fulfill), reply
