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

_CERTIFICATE = "arn:aws:acm:us-east-1:123456789012:certificate/x"
# What an operator may change while a deployment runs: from each to each other.
UPDATES: dict[str, dict[str, Any]] = {
    "production": VARIANTS["production"],
    "rotated": {"key_version": 2},
    "with_domain": {"domain": "relay.example", "certificate_arn": _CERTIFICATE},
    "without_edge": {"edge": False},
    "without_analytics": {"analytics": False},
    "without_operations": {"operations": False},
    "given_key": {
        "secret_key_arn": "arn:aws:secretsmanager:eu-central-1:123456789012:secret:mine-abcdef"
    },
    "guarded": {"web_acl_arn": "arn:aws:wafv2:us-east-1:123456789012:global/webacl/x/y"},
    "renamed": {},  # a function of the surface under another name
}
VARIANTS |= UPDATES


def _rename_a_function() -> None:
    """`quotes` becomes `events`: one function goes, and its route leads to another."""
    from farthing import surface
    from infra import relay

    routes = tuple(
        route._replace(function="events") if route.function == "quotes" else route
        for route in surface.ROUTES
    )
    surface.ROUTES = relay.ROUTES = routes


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
    # Last, as it changes the surface for good.
    for name in sorted(sys.argv[2:], key=lambda name: name == "renamed"):
        if name == "renamed":
            _rename_a_function()
        synthesise(Path(sys.argv[1]), name, checked=name == "production")
