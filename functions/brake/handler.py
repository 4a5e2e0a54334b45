"""Stop the functions that spend money when the budget is spent, until the operator releases them.

A function whose reserved concurrency is 0 does not run. Stored data is not touched. The event
`{"release": true}`, sent by hand, gives every function its former concurrency back.
"""

import json
import os
from typing import Any

from botocore.exceptions import ClientError
from botocore.session import get_session


def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    # Each function's name and normal reserved concurrency; null is no limit.
    bounds: dict[str, int | None] = json.loads(os.environ["FARTHING_BRAKED"])
    client: Any = get_session().create_client("lambda")
    failed: dict[str, str] = {}
    for name, bound in bounds.items():
        try:
            _allow(client, name, bound if event.get("release") else 0)
        except ClientError as error:  # one function that resists must not spare the others
            failed[name] = str(error)
    if failed:
        # Lambda calls again after an error.
        raise RuntimeError(f"expected to change {len(bounds)} functions, failed at {failed}")
    return {"released" if event.get("release") else "stopped": sorted(bounds)}


def _allow(client: Any, name: str, concurrency: int | None) -> None:
    if concurrency is None:
        client.delete_function_concurrency(FunctionName=name)
    else:
        client.put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=concurrency)
