"""The document's six agents, each a process of its own, and what their ledgers say."""

import subprocess
import time
import uuid
from pathlib import Path

from farthing.ilp.packet import Fulfill, Reject
from farthing.store.ledger import Ledger
from farthing.store.routes import Route, RoutingTable
from farthing.store.sqlite import SqliteEngine
from tests.e2e.authors import Author
from tests.e2e.paying import PER_BYTE, command, free_port, pay, payment_for, token_of
from tests.e2e.relay_process import RelayProcess

NAMES = ("alice", "bob", "carol", "eve", "frank", "grace")
# Alice follows Bob and Carol, Bob follows Eve and Frank, Carol follows Grace.
FOLLOWS = {"alice": ("bob", "carol"), "bob": ("eve", "frank"), "carol": ("grace",)}
FEE = 100
CREDIT = 10**9
ENGINE_TOKEN = "the-settlement-engine-of-the-town-0123456789"

Money = dict[tuple[str, str], tuple[int, int, int]]
NOTHING = (0, 0, 0)


class Town:
    def __init__(self, folder: Path, settlement_url: str = "") -> None:
        self.agents = {
            name: self._agent(folder, name, settlement_url).start() for name in NAMES
        }  # fmt: skip

    def _agent(self, folder: Path, name: str, settlement_url: str) -> RelayProcess:
        return RelayProcess(
            folder / name, port=free_port(), ilp_address=f"g.agent.{name}",
            price_per_byte=PER_BYTE, forward_fee=0 if name == "alice" else FEE, forward_fee_ppm=0,
            peer_with_follows=1, upkeep_seconds=0, peer_cache_seconds=0, route_cache_seconds=0,
            settlement_token=ENGINE_TOKEN, settlement_threshold=0,
            settlement_url=settlement_url if name == "alice" else "",
        )  # fmt: skip

    def __getitem__(self, name: str) -> RelayProcess:
        return self.agents[name]

    def run(self, name: str, *arguments: str) -> str:
        """A command at one of the agents, which must succeed."""
        done: subprocess.CompletedProcess[str] = command(self[name], *arguments, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def follow(self, name: str, other: str) -> None:
        """`name` follows `other`, who gives it an account, unless it follows `name` as well."""
        self.run(name, "follow", self[other].pubkey, "--relay", self[other].url)
        if self[name].pubkey not in self.run(other, "follows"):
            self.run(other, "peers", "add", name, "--pubkey", self[name].pubkey,
                 "--max-balance", str(CREDIT))  # fmt: skip

    def route(self, name: str, prefix: str, next_hop: str) -> None:
        """Put a routing table with one route in force."""
        engine = SqliteEngine(self[name].data)
        try:
            owner, hop = self[prefix.rpartition(".")[2]].pubkey, self[next_hop].pubkey
            RoutingTable(engine).replace(
                uuid.uuid4().hex, [Route(prefix, owner, hop, FEE, 2)], int(time.time()),
                shrink_percent=100, force=True,
            )  # fmt: skip
        finally:
            engine.close()

    def pay(
        self, target: str, author: Author, event: dict[str, object], fees: int
    ) -> Fulfill | Reject:
        """Alice's client pays for an event at `target`, through Alice's agent."""
        amount = self.price(target, author, event) + fees
        payment = payment_for(self[target], author, event, amount=amount)
        return pay(self["alice"], payment, token_of(self["alice"]))

    def price(self, target: str, author: Author, event: dict[str, object]) -> int:
        return payment_for(self[target], author, event).amount

    def money(self) -> Money:
        """(agent, account) to what is posted, pending and payable, where anything is."""
        found: Money = {}
        for name, agent in self.agents.items():
            for account, balance in self._balances(agent).items():
                if any(balance):
                    found[name, account] = balance
        return found

    def _balances(self, agent: RelayProcess) -> dict[str, tuple[int, int, int]]:
        names = {each.pubkey: name for name, each in self.agents.items()}
        engine = SqliteEngine(agent.data)
        try:
            ledger = Ledger(engine)
            return {
                names.get(peer.pubkey, peer.id): ledger.balance(peer.id)[:3]
                for peer in ledger.peers()
            }
        finally:
            engine.close()

    def check_books(self) -> None:
        """What one agent says that it owes is what the other says that it is owed, and nothing is
        under way."""
        money = self.money()
        for one in NAMES:
            for other in NAMES:
                owes, is_owed = money.get((one, other), NOTHING), money.get((other, one), NOTHING)
                assert (owes[1], owes[2]) == (0, is_owed[0]), (one, other)

    def audit(self) -> None:
        for name in NAMES:
            assert self.run(name, "audit").splitlines()[-1] == "0 differences", name

    def stop(self) -> None:
        for agent in self.agents.values():
            if agent.is_running:
                assert agent.stop() == 0
            agent.check_log()
