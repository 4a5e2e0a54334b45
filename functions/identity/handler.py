"""CloudFormation asks who the agent is: the public key that goes with the owner's secret one."""

import json
from typing import Any

import urllib3

from farthing.handlers import runtime
from farthing.handlers.calls import Event, Response

runtime.warm_up()


def handler(event: Event, _context: object) -> Response:
    settings = runtime.agent().settings
    known = {"PublicKey": settings.pubkey, "IlpAddress": settings.own_ilp_address}
    answer: dict[str, Any] = {
        "Status": "SUCCESS",
        "PhysicalResourceId": "identity",
        "Data": {} if event["RequestType"] == "Delete" else known,
        **{name: event[name] for name in ("StackId", "RequestId", "LogicalResourceId")},
    }
    # CloudFormation waits for an hour for this and for nothing else.
    urllib3.request("PUT", event["ResponseURL"], body=json.dumps(answer), headers={})
    return answer
