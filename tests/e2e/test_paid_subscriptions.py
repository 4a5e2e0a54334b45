"""Paid subscriptions among running agents: a subscriber's, one in between, and the relay."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import pytest

from farthing.agent.subscription_client import Relay, SubscriptionClient
from farthing.btp_nips.models import Model
from farthing.nostr.events import Event, sign_event
from farthing.nostr.filters import parse_filter
from infra.local.commands.subscribe import HttpCarrier
from tests.e2e.paying import command, free_port, http, terms_of, token_of
from tests.e2e.relay_process import ROOT, RelayProcess, environment

AUTHOR = bytes([7] * 32)
SUBSCRIBER = bytes([8] * 32)
FEE = 3
ADDRESSES = {"ann": "g.net.ann", "hop": "g.hop", "relay": "g.net.relay"}
# What lies behind the hop, for its peers.
BEHIND = {**ADDRESSES, "hop": "g.net"}
LINKS = (("ann", "hop"), ("hop", "relay"))


class Chain:
    """Ann's agent, a hop, and the relay that sells subscriptions."""

    def __init__(self, folder: Path) -> None:
        self.agents = {
            name: RelayProcess(
                folder / name, port=free_port(), ilp_address=address, price_per_byte=0,
                forward_fee=FEE if name == "hop" else 0, forward_fee_ppm=0, upkeep_seconds=0,
                sweep_seconds=1, subscription_hybrid_fee=3000,
            ).start()
            for name, address in ADDRESSES.items()
        }  # fmt: skip
        for one, other in LINKS:
            self._introduce(one, other)
            self._introduce(other, one)

    def _introduce(self, one: str, other: str) -> None:
        self.run(one, "peers", "add", other, "--pubkey", self[other].pubkey, "--address",
                 BEHIND[other], "--endpoint", f"{self[other].http}/ilp",
                 "--max-balance", str(10**9))  # fmt: skip

    def __getitem__(self, name: str) -> RelayProcess:
        return self.agents[name]

    def run(self, name: str, *arguments: str) -> str:
        done = command(self[name], *arguments, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        return str(done.stdout)

    def client(self) -> SubscriptionClient:
        """Ann's, who sends through her own agent."""
        carrier = HttpCarrier(f"{self['ann'].http}/ilp", token_of(self["ann"]))
        terms = terms_of(self["relay"])
        return SubscriptionClient(Relay(terms.destination, terms.pubkey), SUBSCRIBER, carrier)

    def publish(self, *contents: str, kind: int = 1) -> list[str]:
        """The ids of events that the relay has stored."""
        made = [
            sign_event(AUTHOR, kind=kind, content=each, created_at=int(time.time()), tags=[])
            for each in contents
        ]
        for event in made:
            body = json.dumps(event.as_dict()).encode()
            url = f"{self['relay'].http}/v1/events"
            assert http("POST", url, body, Content_Type="application/json").status == 200
        return [event.id for event in made]

    def audit(self) -> None:
        for name in ADDRESSES:
            assert self.run(name, "audit").splitlines()[-1] == "0 differences", name


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    chain = Chain(tmp_path_factory.mktemp("chain"))
    yield chain
    chain.audit()
    for agent in chain.agents.values():
        agent.stop()


class Printed:
    """A `farthing subscribe` that runs, and what it prints."""

    def __init__(self, chain: Chain, *arguments: str) -> None:
        ann = chain["ann"]
        settings = {**ann.settings, "port": ann.port}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "infra.local", "subscribe", "--relay", chain["relay"].url,
             "--connector", f"{ann.http}/ilp", "--json", *arguments],
            cwd=ROOT, env=environment(ann.data, settings), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self._lines: SimpleQueue[str] = SimpleQueue()
        self.said: list[str] = []
        self._told = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()
        threading.Thread(target=self._listen, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(json.loads(line)["id"])

    def _listen(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            self._told.set()

    def opened(self) -> "Printed":
        assert self._told.wait(30), self.said
        assert "subscribed" in self.said[0], self.said
        return self

    def ids(self, number: int, seconds: float = 30) -> list[str]:
        found: list[str] = []
        while len(found) < number:
            try:
                found.append(self._lines.get(timeout=seconds))
            except Empty:
                pytest.fail(f"got {found}, heard {self.said}")
        return found

    def stop(self) -> str:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(30)
        return "".join(self.said)


@pytest.fixture
def printed(chain: Chain) -> Iterator[Callable[..., Printed]]:
    made: list[Printed] = []

    def start(*arguments: str) -> Printed:
        made.append(Printed(chain, *arguments))
        return made[-1]

    yield start
    for each in made:
        if each.process.poll() is None:
            os.kill(each.process.pid, signal.SIGKILL)
            each.process.wait()


@pytest.mark.parametrize(
    ("model", "amount", "kind"),
    [(Model.FREE, 0, 1001), (Model.ONE_TIME, 1160, 1002), (Model.STREAMING, 1100, 1003),
     (Model.HYBRID, 3100, 1004)],
)  # fmt: skip
def test_every_model_by_pull_over_two_hops(
    chain: Chain, model: Model, amount: int, kind: int
) -> None:
    stored = chain.publish("one", "two", kind=kind)

    async def follow() -> tuple[list[Event], list[Event], int]:
        client = chain.client()
        filters = [parse_filter({"kinds": [kind]})]
        subscription = await client.subscribe(filters, amount, model=model)
        before = await subscription.stored()
        new = chain.publish("three", kind=kind)
        after = []
        async for event in subscription:
            after.append(event)
            break
        assert [event.id for event in after] == new
        return before, after, await subscription.close()

    before, _, credit = asyncio.run(follow())

    assert {event.id for event in before} == set(stored)
    assert credit == {Model.STREAMING: 97 - 30, Model.HYBRID: 97 - 15}.get(model, 0)


def test_push_over_two_hops_and_the_relay_killed_in_the_middle(
    chain: Chain, printed: Callable[..., Printed]
) -> None:
    first = chain.publish("a", "b", kind=1005)
    shown = printed(
        "--filter", '{"kinds":[1005]}', "--model", "streaming", "--amount", "2003", "--push"
    ).opened()
    got = shown.ids(2)
    assert set(got) == set(first)

    second = chain.publish("c", "d", "e", kind=1005)
    chain["relay"].kill()
    chain["relay"].settings["port"] = chain["relay"].port
    chain["relay"].start()
    third = chain.publish("f", kind=1005)

    assert shown.ids(4, seconds=60) == [*second, *third]
    said = shown.stop()
    assert "to go on: farthing subscribe" in said
    listed = chain.run("relay", "subscriptions", "list")
    assert "streaming" in listed
    chain.audit()


def test_kill_between_pulls_and_resume(chain: Chain, printed: Callable[..., Printed]) -> None:
    first = chain.publish("a", kind=1006)
    shown = printed(
        "--filter", '{"kinds":[1006]}', "--model", "streaming", "--amount", "1503", "--id", "again"
    ).opened()
    assert shown.ids(1) == first
    said = shown.stop()
    token = said.split("--resume ")[1].split()[0]
    chain["relay"].kill()
    chain["relay"].settings["port"] = chain["relay"].port
    chain["relay"].start()
    missed = chain.publish("b", "c", kind=1006)

    resumed = printed(
        "--filter", '{"kinds":[1006]}', "--model", "streaming", "--amount", "1503",
        "--resume", token,
    )  # fmt: skip

    assert resumed.ids(2) == missed
    resumed.stop()


def test_status_top_up_and_close(chain: Chain, printed: Callable[..., Printed]) -> None:
    printed("--filter", '{"kinds":[1007]}', "--model", "streaming", "--amount", "1503", "--id", "s7"
            ).opened().stop()  # fmt: skip
    ann = chain["ann"]
    where = ("--relay", chain["relay"].url, "--connector", f"{ann.http}/ilp", "--id", "s7")

    assert "credit      500" in chain.run("ann", "subscribe", *where, "--status")
    assert "credit      700" in chain.run("ann", "subscribe", *where, "--top-up", "203")
    assert "returned    700" in chain.run("ann", "subscribe", *where, "--close")
    unknown = command(ann, "subscribe", *where[:-1], "unknown", "--close")
    assert (unknown.returncode, unknown.stdout) == (1, "")
    assert "[subscription_not_found]" in unknown.stderr


def test_the_example_subscribes_at_two_relays_and_prints_each_event_once(chain: Chain) -> None:
    ann, relay = chain["ann"], chain["relay"]
    stored = chain.publish("one", "two", kind=1009)
    given = environment(ann.data, {}) | {
        "NOSTR_SECRET_KEY": SUBSCRIBER.hex(), "FARTHING_TOKEN": token_of(ann),
    }  # fmt: skip

    done = subprocess.run(
        [sys.executable, "docs/examples/subscribe.py", '{"kinds":[1009]}', relay.http,
         ann.http, "--connector", f"{ann.http}/ilp", "--model", "streaming",
         "--amount", "1203", "--events", "2"],
        cwd=ROOT, env=given, capture_output=True, text=True, timeout=60,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert sorted(json.loads(line)["id"] for line in done.stdout.splitlines()) == sorted(stored)
    returned = [line.split()[0] for line in done.stderr.splitlines() if "returned" in line]
    assert sorted(map(int, returned)) == [180, 203]


def test_the_operator_closes_a_subscription_and_its_credit_returns(
    chain: Chain, printed: Callable[..., Printed]
) -> None:
    shown = printed(
        "--filter", '{"kinds":[1008]}', "--model", "streaming", "--amount", "1503", "--id", "s8",
        "--push",
    ).opened()  # fmt: skip
    listed = [line for line in chain.run("relay", "subscriptions", "list").splitlines()
              if " s8 " in line]  # fmt: skip
    owner = listed[0].split()[0]

    assert "returned    500" in chain.run("relay", "subscriptions", "close", owner, "s8")

    shown.process.wait(30)
    assert any("closed by the operator" in line for line in shown.said), shown.said
    shown_again = chain.run("relay", "subscriptions", "show", owner, "s8")
    assert "closed Subscription closed by the operator" in shown_again
    assert re.search(r'^filter +\{"', shown_again, re.MULTILINE), "JSON, as it is typed"


def test_a_free_relay_states_its_fees(chain: Chain) -> None:
    document: dict[str, Any] = http(
        "GET", chain["relay"].http, Accept="application/nostr+json"
    ).json()
    models = [each["model"] for each in document["fees"]["paid_subscription"]]
    assert models == ["free", "one_time", "streaming", "hybrid"]
    quoted = http(
        "POST", f"{chain['relay'].http}/v1/quotes",
        json.dumps({"subscription": {"model": "one_time", "filters": [{"kinds": [1]}]}}).encode(),
        Content_Type="application/json",
    ).json()  # fmt: skip
    assert (quoted["price"], quoted["least"], quoted["complexity"]) == ("1160", "1160", 1)
