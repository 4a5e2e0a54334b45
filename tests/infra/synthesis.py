"""Synthesises the app into a folder, once for each variant that tests ask about."""

import sys
from pathlib import Path
from typing import Any

VARIANTS: dict[str, dict[str, Any]] = {
    "production": {},
    "named": {
        "domain": "relay.example",
        "certificate_arn": "arn:aws:acm:us-east-1:123456789012:certificate/x",
        "analytics": "false",
        "operations": "false",
        "price_per_byte": "25",
        "secret_key_arn": "arn:aws:secretsmanager:eu-central-1:123456789012:secret:mine-abcdef",
    },
    "small": {
        "edge": False,
        "analytics": False,
        "removal": "destroy",
        "monthly_budget": 0,
        "concurrency": "{}",
        "prefix": "small-",
    },
}


def synthesise(folder: Path, variant: str, *, checked: bool) -> None:
    from aws_cdk import App, Validations
    from cdk_nag import AwsSolutionsChecks

    from infra.app import NOTHING_BUILT, build

    app = App(outdir=str(folder / variant), context={**NOTHING_BUILT, **VARIANTS[variant]})
    build(app)
    if checked:
        Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    try:
        app.synth()
    except RuntimeError:  # what is found stands in a report, which a test judges
        if not (folder / variant / "validation-report.json").exists():
            raise


if __name__ == "__main__":
    for name in sys.argv[2:]:
        synthesise(Path(sys.argv[1]), name, checked=name == "production")
