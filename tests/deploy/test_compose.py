"""The compose file and Caddy's: what is reachable from outside, and what is not."""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import urllib3
import yaml
from websockets.sync.client import connect

from farthing.settings import PREFIX, Settings
from tests.e2e.paying import free_port, http
from tests.e2e.relay_process import ROOT, RelayProcess

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
CADDYFILE = ROOT / "infra/public/Caddyfile"
CADDY = shutil.which("caddy")


def test_only_caddy_is_reachable() -> None:
    assert [name for name, service in SERVICES.items() if "ports" in service] == ["caddy"]
    assert SERVICES["farthing"]["network_mode"] == "service:caddy"
    assert SERVICES["farthing"]["environment"]["FARTHING_HOST"] == "127.0.0.1"


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_has_no_right_that_it_does_not_need(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service.get("cap_add", []) == (["NET_BIND_SERVICE"] if name == "caddy" else [])
    assert "privileged" not in service


@pytest.mark.parametrize("name", SERVICES)
def test_every_mount_exists_and_is_read_only(name: str) -> None:
    for mount in SERVICES[name]["volumes"]:
        source = mount.split(":")[0]
        if source.startswith("."):
            assert (ROOT / source).is_file()
            assert mount.endswith(":ro")
        else:
            assert source in COMPOSE["volumes"]


def test_data_lie_where_the_image_has_them() -> None:
    assert "farthing-data:/data" in SERVICES["farthing"]["volumes"]
    assert "FARTHING_DATA=/data" in (ROOT / "Dockerfile").read_text()


def test_every_variable_is_a_setting() -> None:
    known = {PREFIX + setting.name.upper() for setting in fields(Settings)} | {"FARTHING_CONFIG"}
    assert SERVICES["farthing"]["environment"].keys() <= known


def test_a_domain_has_to_be_given() -> None:
    assert SERVICES["caddy"]["environment"]["FARTHING_DOMAIN"].startswith("${FARTHING_DOMAIN:?")
    assert "{$FARTHING_DOMAIN}" in CADDYFILE.read_text()


def test_caddy_sends_to_the_port_of_the_image() -> None:
    (port,) = re.findall(r"reverse_proxy .*:(\d+)", CADDYFILE.read_text())
    assert f"FARTHING_PORT={port}" in (ROOT / "Dockerfile").read_text()


# Caddy itself, where it is installed (Debian has it as `caddy`)


@pytest.fixture
def public(tmp_path: Path) -> Iterator[str]:
    """A relay behind Caddy: the URL that strangers use."""
    if CADDY is None:
        pytest.skip("caddy is not installed")
    relay = RelayProcess(tmp_path / "data").start()
    url = f"http://127.0.0.1:{free_port()}"
    given = {
        "FARTHING_DOMAIN": url,
        "FARTHING_UPSTREAM": f"127.0.0.1:{relay.port}",
        "XDG_DATA_HOME": str(tmp_path / "caddy"),
        "XDG_CONFIG_HOME": str(tmp_path / "caddy"),
    }
    # Its interface for changes has a fixed port.
    config = tmp_path / "Caddyfile"
    config.write_text("{\n\tadmin off\n}\n" + CADDYFILE.read_text())
    proxy = subprocess.Popen(
        [CADDY, "run", "--config", config, "--adapter", "caddyfile"],
        env=os.environ | given, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until_it_answers(f"{url}/healthz")
        yield url
    finally:
        proxy.kill()
        proxy.wait()
        relay.kill()


def until_it_answers(url: str, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            assert http("GET", url).status == 200
        except urllib3.exceptions.HTTPError:
            assert time.monotonic() < deadline, f"{url} does not answer"
            time.sleep(0.05)
        else:
            return


def test_strangers_see_the_relay_and_not_its_figures(public: str) -> None:
    assert http("GET", f"{public}/", Accept="application/nostr+json").json()["name"] == "Farthing"
    for path in ("/metrics", "/metrics/", "/METRICS", "/%6detrics", "//metrics", "/x/../metrics"):
        answer = http("GET", f"{public}{path}")
        assert answer.status == 404, path
        assert b"farthing" not in answer.data.lower()


def test_a_body_that_nobody_needs_is_refused_by_caddy(public: str) -> None:
    # Older versions say that the request could not be passed on.
    assert http("POST", f"{public}/v1/quotes", b"x" * 300_000).status in (413, 502)


def test_sockets_pass_through_caddy(public: str) -> None:
    with connect(public.replace("http", "ws", 1)) as socket:
        socket.send('["REQ","s",{"limit":0}]')
        answers = [socket.recv(20), socket.recv(20)]
    assert answers[0].startswith('["AUTH"')
    assert answers[1] == '["EOSE","s"]'
