"""Exit with 0 if the server on this machine answers, with 1 if it does not.

Uses only the standard library, because it runs every half minute.
"""

import os
import sys
from http.client import HTTPConnection, HTTPException

_SECONDS = 3


def is_healthy(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=_SECONDS)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except (OSError, HTTPException) as error:
        print(f"no answer on port {port}: {error}", file=sys.stderr)
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(0 if is_healthy(int(os.environ.get("FARTHING_PORT", "7777"))) else 1)
