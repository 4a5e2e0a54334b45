"""The commands in README.md and docs/ do what the pages say, typed in the order of each page.

They run beside two relays: our own, and another one that stands for every other relay in the pages.
Placeholders of the pages stand for real keys, ids and folders.
"""

import re
import secrets
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from farthing.aether.keys import owner_seed, public_key
from farthing.nostr.nip19 import Note, Npub, encode
from infra.local import cli
from infra.local.commands.paying import AUTHOR_FILE
from infra.local.server.identity import kept_secret
from tests.documents import DOCS, PAGES, shell_commands
from tests.e2e.authors import Author
from tests.e2e.paying import PER_BYTE, command_environment, free_port
from tests.e2e.relay_process import ROOT, RelayProcess

_TOKEN = "settlement-token-0123456789"
_SECONDS = 30.0
# These need Spark, or take long. Each is run by the test beside it.
ELSEWHERE = {
    "cost": "tests/infra/test_costs.py",
    "routes rebuild --quiet": "tests/glue/test_rebuild_command.py",
}
# Commands that run until Ctrl-C, and the text that they print before.
UNTIL_STOPPED = (
    ("watch --filter", "a farthing for your thoughts"),
    ("watch --aether", "hello"),
    ("stream ", "down"),
    ("subscribe --filter", "subscribed"),
)
# What the other commands print, by their beginnings. The first that fits counts.
PRINTED = (
    ('post "a farthing', r"fulfilment +[0-9a-f]{64}\nstored +after \d+ ms"),
    ('post "cheap"', r"rejected +F04 storing this event costs \d+"),
    ('post "hello Eve"', r"stored +after \d+ ms"),
    ("post --aether", r"stored|accepted"),
    ("audit", r"\n0 differences\n"),
    ("capability issue", r'"issuer":'),
    ("aether key", r"public key +[0-9a-f]{64}"),
    ("broadcasts", r""),
    ("ban npub1", r"is banned"),
    ("ban note1", r"is banned and removed"),
    ("ban", r"event +[0-9a-f]{64}"),
    ("unban", r"no longer banned"),
    ("allow", r"writes for free"),
    ("scan", r"a farthing for your thoughts"),
    ("delete", r"0 events would be removed"),
    ("backup", r"The copy holds the key"),
    ("restore", r"0 differences"),
    ("purse list", r""),
    ("purse", r""),
    ("follow ", r"following [0-9a-f]{64}"),
    ("upkeep", r"gathered \d+ events at 1 relays, 0 do not answer\nproposed 1 peers"),
    ("follows", r"  peer       g\.agent\."),
    ("routes explain", r"we keep     \d+ of 10000"),
    ("ledger alice", r"settled +-3000"),
    ("subscribe --id notes --close", r"to the purse"),
    ("subscribe --id notes", r"one_time"),
    ("subscriptions list", r"notes"),
    ("curl http://127.0.0.1:7778/accounts", r'"amount":"3000"'),
    ("curl -H", r'"supported_nips"'),
)
FAILS = {'post "cheap" --amount 5'}
# These are typed by the operator of the other agent.
ACCOUNT = "peers add alice --pubkey OUR_KEY --max-balance 1000000000"
FOLLOW_BACK = ("follow OUR_KEY --relay OUR_URL", "upkeep")
AT_OTHER = {"ledger alice"}


class World:
    """Two relays, and what the placeholders of the pages stand for."""

    def __init__(self, own: RelayProcess, other: RelayProcess, folder: Path) -> None:
        self.own, self.other, self.folder = own, other, folder
        self.stranger = encode(Npub(Author().pubkey))
        self.event, self.capability = "", ""

    def words(self, typed: str) -> list[str]:
        return [self._word(word) for word in shlex.split(typed, comments=True)]

    def _word(self, word: str) -> str:
        if word.startswith(("ws://", "wss://")):
            return self.other.url
        if re.fullmatch(r"[0-9a-f]{64}", word):
            return self.other.pubkey
        return {
            "npub1...": self.stranger,
            "note1...": self.event,
            "KEY": self.aether_key,
            "OUR_KEY": self.own.pubkey,
            "OUR_URL": self.own.url,
            '{"issuer":…}': self.capability,
            "/backups/today": str(self.folder / "backup"),
            "g.agent.eve": f"g.agent.{self.other.pubkey}",
            "http://127.0.0.1:7777/ilp": f"{self.own.http}/ilp",
            "streams.toml": str(self.folder / "streams.toml"),
        }.get(word, word)

    @property
    def aether_key(self) -> str:
        """The key with which `farthing post --aether` signs."""
        secret = kept_secret(self.own.data / AUTHOR_FILE, lambda: secrets.token_hex(32))
        return public_key(owner_seed(bytes.fromhex(secret)))

    def environment(self, typed: str) -> dict[str, str]:
        variables = command_environment(self.other if typed in AT_OTHER else self.own)
        if typed.startswith("restore"):
            variables["FARTHING_DATA"] = str(self.folder / "restored")
        return variables


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("documented")
    settings = {
        "price_per_byte": PER_BYTE, "peer_with_follows": 1, "settlement_token": _TOKEN,
        "requests_per_second": 0,
    }  # fmt: skip
    own = RelayProcess(folder / "own", port=free_port(), **settings).start()
    other = RelayProcess(folder / "other", port=free_port(), **settings).start()
    yield World(own, other, folder)
    for relay in (own, other):
        assert relay.stop() == 0
        relay.check_log()


@pytest.fixture
def farthing(
    world: World, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> "Farthing":
    return Farthing(world, monkeypatch, capfd)


class Farthing:
    """Types commands: in this process, which saves the start of another."""

    def __init__(
        self,
        world: World,
        monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str],
    ) -> None:
        self._world, self._monkeypatch, self._capfd = world, monkeypatch, capfd

    def __call__(self, typed: str, at: RelayProcess | None = None) -> tuple[int, str]:
        self._capfd.readouterr()
        variables = command_environment(at) if at else self._world.environment(typed)
        with self._monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            status = cli.main(self._world.words(typed))
        printed = self._capfd.readouterr()
        return status, printed.out + printed.err

    def until_stopped(self, typed: str, text: str) -> None:
        """In a process of its own, which gets Ctrl-C when it has printed the text."""
        process = subprocess.Popen(
            [sys.executable, "-m", "infra.local", *self._world.words(typed)],
            cwd=ROOT, env=self._world.environment(typed), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert process.stdout is not None
        hung = threading.Timer(_SECONDS, process.kill)
        hung.start()
        printed = ""
        try:
            while text not in printed:
                line = process.stdout.readline()
                assert line, f"farthing {typed} has ended:\n{printed}"
                printed += line
            process.send_signal(signal.SIGINT)
            process.stdout.read()
            assert process.wait() in (0, 130), printed
        finally:
            hung.cancel()
            process.kill()
            process.wait()
            process.stdout.close()

    def shell(self, typed: str) -> str:
        """With curl, and the variables that the page names."""
        variables = {
            **self._world.environment(typed),
            "FARTHING_SETTLEMENT_TOKEN": _TOKEN, "WEB_URL": self._world.own.http,
        }  # fmt: skip
        line = typed.replace("http://127.0.0.1:7778", self._world.other.http)
        done = subprocess.run(
            ["sh", "-c", line], env=variables, capture_output=True, text=True, check=True,
            timeout=_SECONDS,
        )  # fmt: skip
        return done.stdout


def prepare(page: Path, world: World, farthing: Farthing) -> None:
    """What a page takes for granted."""
    match page.name:
        case "operators.md":
            _, printed = farthing('post "hello, to be banned"')
            found = re.search(r"event +([0-9a-f]{64})", printed)
            assert found is not None
            world.event = encode(Note(found[1]))
            (world.folder / "streams.toml").write_text(
                f'[streams.friends]\nurls = ["{world.other.url}"]\ndir = "both"\n'
            )
        case "routing.md":
            assert farthing(ACCOUNT, world.other)[0] == 0
        case "subscriptions.md":
            for typed in FOLLOW_BACK:
                assert farthing(typed, world.other)[0] == 0


@pytest.mark.parametrize(
    "page", [page for page in PAGES if shell_commands(page)], ids=lambda page: page.name
)
def test_the_commands_of_a_page_do_what_it_says(
    page: Path, world: World, farthing: Farthing
) -> None:
    prepare(page, world, farthing)
    for typed in shell_commands(page):
        command = typed.partition("  #")[0].strip()
        if command in ELSEWHERE:
            continue
        text = next((text for start, text in UNTIL_STOPPED if command.startswith(start)), None)
        if text is not None:
            farthing.until_stopped(command, text)
            continue
        if command.startswith("curl"):
            status, printed = 0, farthing.shell(command)
        else:
            status, printed = farthing(command)
        assert status == (1 if command in FAILS else 0), f"farthing {command}:\n{printed}"
        wanted = next(wanted for start, wanted in PRINTED if command.startswith(start))
        assert re.search(wanted, printed), f"farthing {command}:\n{printed}"
        if command.startswith("capability issue"):
            world.capability = printed.strip()


@pytest.mark.parametrize(("command", "test"), ELSEWHERE.items())
def test_a_command_that_takes_long_is_run_by_a_test_of_its_own(command: str, test: str) -> None:
    assert command.partition(" ")[0] in (ROOT / test).read_text()
    assert command in {typed for page in DOCS.glob("*.md") for typed in shell_commands(page)}
