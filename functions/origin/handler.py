"""Authorizer of both APIs: checks that a request came through CloudFront, and names the viewer.

The distribution sends a secret that only CloudFront and this function know. The answer has the
viewer's address, for the access log and for the handlers: `requestContext.authorizer`.
"""

import hmac
import os
from functools import cache
from typing import Any

from botocore.session import get_session

SECRET, VIEWER = "x-farthing-origin", "x-farthing-viewer"


@cache
def secret() -> str:
    client: Any = get_session().create_client("secretsmanager")
    text: str = client.get_secret_value(SecretId=os.environ["FARTHING_ORIGIN_SECRET"])[
        "SecretString"
    ]
    return text


def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    headers = {name.lower(): text for name, text in (event.get("headers") or {}).items()}
    known = hmac.compare_digest(headers.get(SECRET, "").encode(), secret().encode())
    viewer = {"viewer": headers.get(VIEWER, "") if known else ""}
    if "methodArn" in event:  # the WebSocket API takes a policy only
        statement = {
            "Action": "execute-api:Invoke",
            "Effect": "Allow" if known else "Deny",
            "Resource": event["methodArn"],
        }
        policy = {"Version": "2012-10-17", "Statement": [statement]}
        return {"principalId": "viewer", "policyDocument": policy, "context": viewer}
    return {"isAuthorized": known, "context": viewer}
