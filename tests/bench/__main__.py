"""The benchmarks, as a table and as JSON.

    python -m tests.bench [NAME ...] [--quick] [--json FILE]

Every ratio is of two things measured in this one run, on this machine.
"""

import argparse
import json
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path

from tests.bench.result import Row, document, table
from tests.e2e.relay_process import ROOT

# Each is a module here with `run(quick) -> rows`; those that need quiet come first.
BENCHES = (
    "ingest",
    "peers",
    "paid",
    "purse",
    "aether",
    "forwarding",
    "req",
    "subscriptions",
    "fan_out",
    "changes",
    "follow",
    "units",
    "imports",
    "memory",
    "negentropy_core",
    "negentropy_server",
    "routes_spark",
)
_LATEST = ROOT / "bench-results" / "latest.json"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *BENCHES], metavar="NAME",
                        help=f"of {', '.join(BENCHES)}; all if left out")  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="short runs, for trying them out")
    parser.add_argument("--json", default="", metavar="FILE", help="also there; - for stdout")
    options = parser.parse_args()
    rows, failed = _run(options.names or BENCHES, quick=options.quick)
    text = json.dumps(document(rows, quick=options.quick), indent=2, ensure_ascii=False) + "\n"
    _LATEST.parent.mkdir(exist_ok=True)
    _LATEST.write_text(text)
    print(table(rows), file=sys.stderr if options.json == "-" else sys.stdout)
    if options.json == "-":
        sys.stdout.write(text)
    elif options.json:
        Path(options.json).write_text(text)
    return 1 if failed else 0


def _run(names: list[str] | tuple[str, ...], *, quick: bool) -> tuple[list[Row], bool]:
    """The rows of all that could be measured, and whether something could not."""
    rows: list[Row] = []
    failed = False
    for name in names:
        print(f"{name} ...", end=" ", file=sys.stderr, flush=True)
        started = time.monotonic()
        try:
            rows += import_module(f"tests.bench.{name}").run(quick)
        except Exception:
            failed = True
            traceback.print_exc()
        print(f"{time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    return rows, failed


if __name__ == "__main__":
    sys.exit(main())
