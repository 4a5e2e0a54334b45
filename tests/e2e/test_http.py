"""Plain HTTP on the relay's port: the information document, health, and what is not there."""

import json

import pytest

from farthing.settings import Settings
from farthing.surface import ROUTES, Route, allowed_methods
from tests.e2e.authors import Author
from tests.e2e.client import Background, RawClient
from tests.e2e.http import Answer, request
from tests.e2e.relay_process import RelayProcess, launch

NOSTR_JSON = {"Accept": "application/nostr+json"}


@pytest.fixture
def ask(background: Background, relay: RelayProcess):
    def ask(method: str, path: str = "/", headers: dict[str, str] | None = None) -> Answer:
        return request(background, method, relay.http + path, headers)

    return ask


def test_the_information_document_tells_the_settings_in_force(ask, relay: RelayProcess):
    answer = ask("GET", headers=NOSTR_JSON)
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/nostr+json"
    document = json.loads(answer.body)
    limits = document["limitation"]
    settings = Settings(price_per_byte=0)

    assert document["pubkey"] == relay.pubkey
    assert document["name"] == settings.name
    assert {1, 9, 11, 40, 42, 45, 70} <= set(document["supported_nips"])
    same = (
        "max_message_length",
        "max_subscriptions",
        "max_filters",
        "max_limit",
        "default_limit",
        "max_event_tags",
        "max_content_length",
    )
    assert {name: limits[name] for name in same} == {name: getattr(settings, name) for name in same}
    assert limits["max_subid_length"] == 64
    assert limits["created_at_upper_limit"] == settings.created_at_future
    assert limits["payment_required"] is False
    assert limits["auth_required"] is False


def test_changed_settings_change_the_document(start_relay, background: Background):
    relay = start_relay(name="A farthing's worth", max_subscriptions=7, contact="mailto:x@y.z")
    document = json.loads(request(background, "GET", relay.http, NOSTR_JSON).body)
    assert document["name"] == "A farthing's worth"
    assert document["contact"] == "mailto:x@y.z"
    assert document["limitation"]["max_subscriptions"] == 7
    assert document["limitation"]["payment_required"] is True


@pytest.mark.parametrize(
    "accept",
    [
        "application/nostr+json, */*",
        "text/html,application/nostr+json",
        "Application/Nostr+JSON",
        "application/json",
        "*/*",  # the example in NIP-CF fetches the document so
    ],
)
def test_accept_may_name_more(ask, accept: str):
    answer = ask("GET", headers={"Accept": accept})
    assert answer.headers["Content-Type"] == "application/nostr+json"
    assert "limitation" in json.loads(answer.body)


def test_any_web_page_may_read_it(ask):
    for method in ("GET", "OPTIONS", "HEAD"):
        answer = ask(method, headers={**NOSTR_JSON, "Origin": "https://client.example"})
        assert answer.headers["Access-Control-Allow-Origin"] == "*"
        assert "*" in answer.headers["Access-Control-Allow-Headers"].split(", ")
        assert "GET" in answer.headers["Access-Control-Allow-Methods"]
    assert ask("OPTIONS").status == 204


@pytest.mark.parametrize("path", ["/ilp", "/v1/quotes", "/v1/events", "/accounts/a/settlements"])
def test_a_web_page_may_pay(ask, path: str):
    asked = {
        "Origin": "https://client.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization, content-type",
    }
    answer = ask("OPTIONS", path, asked)
    assert answer.status == 204
    assert {"Authorization", "Content-Type", "Idempotency-Key", "Prefer", "Request-Id"} <= set(
        answer.headers["Access-Control-Allow-Headers"].split(", ")
    )
    refused = ask("POST", path, {"Origin": "https://client.example"})
    assert refused.status in (400, 401)
    assert refused.headers["Access-Control-Allow-Origin"] == "*"


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("DELETE", "/ilp", "OPTIONS, POST"),
        ("GET", "/ilp", "OPTIONS, POST"),
        ("PUT", "/v1/events", "OPTIONS, POST"),
        ("GET", "/accounts/a/settlements", "OPTIONS, POST"),
        ("POST", "/healthz", "GET, HEAD, OPTIONS"),
        ("POST", "/metrics", "GET, HEAD, OPTIONS"),
        ("PATCH", "/healthz", "GET, HEAD, OPTIONS"),
    ],
)
def test_a_wrong_method_is_405_with_allow(ask, method: str, path: str, allow: str):
    answer = ask(method, path)
    assert (answer.status, answer.headers["Allow"]) == (405, allow)
    assert json.loads(answer.body)["status"] == 405


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.keys[0])
def test_every_route_of_the_surface_is_served_and_no_other_method(ask, route: Route):
    path = route.path.replace("{", "").replace("}", "")
    served = ask(route.method, path)
    assert served.status != 405
    assert "expected a known path" not in served.body
    allowed = allowed_methods(path)
    (wrong, *_) = {"DELETE", "PATCH", "PUT"} - set(allowed)
    refused = ask(wrong, path)
    assert (refused.status, refused.headers["Allow"]) == (405, ", ".join(allowed))


def test_a_reader_of_text_is_told_what_this_is(ask):
    answer = ask("GET", headers={"Accept": "text/plain"})
    assert answer.status == 200
    assert "Nostr" in answer.body
    assert answer.headers["Content-Type"].startswith("text/plain")


def test_the_health_check_answers_ok(ask):
    assert json.loads(ask("GET", "/healthz").body) == {"status": "ok"}


def test_head_has_no_body(ask):
    answer = ask("HEAD", headers=NOSTR_JSON)
    assert (answer.status, answer.body) == (200, "")
    assert int(answer.headers["Content-Length"]) > 0


@pytest.mark.parametrize("path", ["/nothing", "/healthz/x", "/..%2f..%2fetc/passwd", "/%00", "//"])
def test_an_unknown_path_gets_404(ask, path: str):
    assert ask("GET", path).status == 404


def test_a_body_that_is_too_large(background: Background, relay: RelayProcess):
    answer = request(background, "POST", relay.http + "/", body=b"x" * 3_000_000)
    assert answer.status == 413


def test_websocket_and_http_on_one_port(ask, client: RawClient, author: Author):
    client.store(event := author.event())
    assert ask("GET", "/healthz").status == 200
    assert client.ids({"authors": [author.pubkey]}) == [event["id"]]


def ends(data, settings: dict[str, object]) -> tuple[int, str]:
    """The exit code and the complaint of a server that cannot start."""
    with (data.parent / "complaint").open("w+") as log:
        process = launch(data, settings, log)
        try:
            code = process.wait(20)
        finally:
            process.kill()
            process.communicate()
        log.seek(0)
        return code, log.read()


def test_a_busy_port_ends_the_start_with_one_line(relay: RelayProcess, tmp_path):
    code, complaint = ends(tmp_path / "data", {"port": relay.port})
    assert code != 0
    assert complaint.startswith(f"farthing: cannot listen on 127.0.0.1:{relay.port}: ")
    assert "FARTHING_PORT" in complaint
    assert len(complaint.splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("secret-key", b"",
         "expected a secret in {file}, got nothing: restore the file or remove it"),
        ("secret-key", b"zz\n",
         "expected a key in {file}: restore the file or remove it"),
        ("secret-key", b"\xff\xfe\0",
         "expected a key in {file}: restore the file or remove it"),
        ("farthing.db", b"x" * 9999,
         "the database in {data} cannot be used: file is not a database"),
        ("peer-token", b"\xff",
         "expected at least 32 random bytes as the token of the peer `local`"),
    ],
)  # fmt: skip
def test_a_file_that_is_broken(tmp_path, name: str, content: bytes, complaint: str):
    data = tmp_path / "data"
    data.mkdir()
    (data / name).write_bytes(content)
    code, said = ends(data, {"port": 0})
    assert code in (1, 2)
    assert said == f"farthing: {complaint.format(file=data / name, data=data)}\n"
    assert (data / name).read_bytes() == content


def test_a_data_folder_that_another_uses(relay: RelayProcess, client: RawClient, author: Author):
    code, complaint = ends(relay.data, {"port": 0})
    assert code != 0
    assert complaint == f"farthing: another Farthing is running on {relay.data}\n"
    client.store(author.event())


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"port": "http"}, "FARTHING_PORT"),
        ({"port": 70000}, "FARTHING_PORT"),
        ({"max_limit": -1}, "FARTHING_MAX_LIMIT"),
        ({"secret_key": "abc"}, "FARTHING_SECRET_KEY"),
        ({"secret_key": "0" * 64}, "FARTHING_SECRET_KEY"),
        ({"free_pubkeys": "npub1xyz"}, "FARTHING_FREE_PUBKEYS"),
        ({"data": "/dev/null/x"}, "/dev/null/x"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_setting_that_cannot_be(tmp_path, settings: dict[str, object], named: str):
    code, complaint = ends(tmp_path / "data", settings)
    assert code != 0
    assert complaint.startswith("farthing: ")
    assert named in complaint
    assert "Traceback" not in complaint


def test_a_key_file_that_holds_no_key(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "secret-key").write_text("")
    code, complaint = ends(tmp_path / "data", {})
    assert code != 0
    assert "secret-key" in complaint
    assert "Traceback" not in complaint


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"relay_url": "http://relay.example"},
         "FARTHING_RELAY_URL: expected a URL with ws:// or wss://, got 'http://relay.example'"),
        ({"profile": "{"}, "FARTHING_PROFILE: expected a JSON object, got '{'"),
        ({"prise_per_byte": 1},
         "there is no setting FARTHING_PRISE_PER_BYTE; the nearest is FARTHING_PRICE_PER_BYTE"),
    ],
)  # fmt: skip
def test_nonsense_is_refused_at_the_start_with_one_plain_line(tmp_path, settings, complaint):
    code, said = ends(tmp_path / "data", settings)
    assert (code, said) == (2, f"farthing: {complaint}\n")


def test_a_server_that_listens_everywhere_announces_an_address_that_exists(
    start_relay, background: Background
):
    relay = start_relay(host="0.0.0.0")
    document = json.loads(request(background, "GET", relay.http, NOSTR_JSON).body)
    assert document["ilp"]["endpoint"] == f"http://127.0.0.1:{relay.port}/ilp"
    assert "0.0.0.0" not in json.dumps(document)


def test_all_that_is_kept_is_the_owners_alone(relay: RelayProcess):
    assert relay.data.stat().st_mode & 0o777 == 0o700
    kept = {path.name: path.stat().st_mode & 0o777 for path in relay.data.iterdir()}
    assert {"farthing.db", "lock", "peer-token", "secret-key"} <= kept.keys()
    assert set(kept.values()) == {0o600}


def test_a_key_that_others_could_read_is_closed_to_them(tmp_path, start_relay):
    relay = start_relay()
    relay.stop()
    (relay.data / "secret-key").chmod(0o644)
    relay.start()
    assert (relay.data / "secret-key").stat().st_mode & 0o777 == 0o600
