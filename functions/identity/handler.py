"""CloudFormation asks who the agent is: the public keys that go with the owner's secret one.

What else follows from the secret key, and is secret too, goes into an encrypted parameter.
Functions that serve encrypted sockets read it there, and never hold the owner's key.
"""

import json
import os
from typing import Any

import urllib3

from farthing.aws.environment import write_parameter
from farthing.handlers import runtime
from farthing.handlers.calls import Event, Response
from farthing.relay.aether.owner import owner_keys

runtime.warm_up()


def handler(event: Event, _context: object) -> Response:
    agent = runtime.agent()
    keys = owner_keys(agent)
    known = {
        "PublicKey": agent.settings.pubkey,
        "IlpAddress": agent.settings.own_ilp_address,
        "DerivedKeys": keys.write(public=True),
    }
    derived = None if event["RequestType"] == "Delete" else keys.write(public=False)
    write_parameter(os.environ["DERIVED_KEYS"], derived)
    answer: dict[str, Any] = {
        "Status": "SUCCESS",
        "PhysicalResourceId": "identity",
        "Data": {} if event["RequestType"] == "Delete" else known,
        **{name: event[name] for name in ("StackId", "RequestId", "LogicalResourceId")},
    }
    # CloudFormation waits for an hour for this and for nothing else.
    urllib3.request("PUT", event["ResponseURL"], body=json.dumps(answer), headers={})
    return answer
