"""The budget is spent: stop the functions that spend, until the operator lets them go again.

A function whose reserved concurrency is nought runs no more; nothing stored is touched. By hand:
`{"release": true}` gives every function back what it had.
"""

import json
import os
from typing import Any

from botocore.session import get_session


def handler(event: dict[str, Any], _context: object) -> dict[str, Any]:
    # Each function's name, and the concurrency that it has when it runs: null is no bound.
    bounds: dict[str, int | None] = json.loads(os.environ["FARTHING_BRAKED"])
    client: Any = get_session().create_client("lambda")
    for name, bound in bounds.items():
        allowed = bound if event.get("release") else 0
        if allowed is None:
            client.delete_function_concurrency(FunctionName=name)
        else:
            client.put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=allowed)
    return {"released" if event.get("release") else "stopped": sorted(bounds)}
