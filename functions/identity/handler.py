"""Tell CloudFormation the agent's public keys, which are derived from the owner's secret key.

Secret keys that are derived from it go into an encrypted parameter. Functions that serve encrypted
sockets read this parameter, and never hold the owner's key.
"""

import json
import logging
import os
from typing import Any

import urllib3

from farthing.aws.environment import write_parameter
from farthing.handlers import runtime
from farthing.handlers.calls import Event, Response
from farthing.relay.aether.owner import owner_keys

log = logging.getLogger("farthing")

runtime.warm_up()


def handler(event: Event, _context: object) -> Response:
    answer: dict[str, Any] = {
        "Status": "SUCCESS",
        "PhysicalResourceId": "identity",
        **{name: event[name] for name in ("StackId", "RequestId", "LogicalResourceId")},
    }
    try:
        answer["Data"] = _identity(event["RequestType"])
    except Exception as error:
        log.exception("the agent's keys could not be computed or stored")
        answer |= {"Status": "FAILED", "Reason": f"{type(error).__name__}, see the function's log"}
    # CloudFormation waits for this answer, also after a failure.
    urllib3.request("PUT", event["ResponseURL"], body=json.dumps(answer), headers={})
    return answer


def _identity(request: str) -> dict[str, str]:
    agent = runtime.agent()
    keys, parameter = owner_keys(agent), os.environ["DERIVED_KEYS"]
    if request == "Delete":
        write_parameter(parameter, None)
        return {}
    write_parameter(parameter, keys.write(public=False))
    return {
        "PublicKey": agent.settings.pubkey,
        "IlpAddress": agent.settings.own_ilp_address,
        "DerivedKeys": keys.write(public=True),
    }
