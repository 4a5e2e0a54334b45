"""Mutated envelopes in packets, through the whole connector:
`python -m tests.subscriptions.fuzz 100000`.

Whatever comes in, the reply is a packet, and never one about an internal error.
"""

import random
import resource
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "layers/farthing/python"))

from farthing.agent.audit import audit
from farthing.context import Agent
from farthing.ilp.condition import author_fulfillment, condition_of
from farthing.ilp.packet import DATA_MAX, Prepare, Reject
from farthing.ports.meter import Metric
from farthing.store.sqlite import SqliteEngine
from tests.btp_nips.fuzz import inputs
from tests.btp_nips.vectors import CLIENT_SECRET
from tests.ilp.paying import expiry, paid_agent, send
from tests.relay.world import Clock, counts_of
from tests.subscriptions.world import store_notes

MOMENT = 1733414400  # of the messages that the fuzzer begins with
AMOUNTS = (0, 0, 1, 1010, 1460, 20_000)


def fuzz(agent: Agent, number: int, seed: int) -> Counter[str]:
    """Send so many packets and count the replies."""
    dice = random.Random(seed)
    relay = bytes.fromhex(agent.settings.pubkey)
    outcomes: Counter[str] = Counter()
    for data in inputs(number, seed):
        if len(data) > DATA_MAX:
            continue
        fulfillment = author_fulfillment(CLIENT_SECRET, relay, data)
        if dice.random() < 0.3:
            fulfillment = sha256(data).digest()
        prepare = Prepare(
            amount=dice.choice(AMOUNTS),
            expires_at=expiry(agent),
            condition=condition_of(fulfillment),
            destination=agent.settings.own_ilp_address,
            data=data,
        )
        reply = send(agent, prepare)
        outcomes[reply.code if isinstance(reply, Reject) else "fulfilled"] += 1
    return outcomes


def agent_at(folder: Path) -> Agent:
    clock = Clock()
    clock.now = MOMENT
    agent = paid_agent(SqliteEngine(folder, clock=clock), clock)
    # Nobody else counts packets, and there are many.
    settings = replace(agent.settings, packets_per_minute=10**9, subscription_max=10**6)
    store_notes(agent, 5)
    return replace(agent, settings=settings, alone=True)


def check(agent: Agent) -> None:
    assert counts_of(agent).get(Metric.INTERNAL_ERRORS, 0) == 0
    assert audit(agent).differences == []


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        agent = agent_at(Path(folder))
        fuzz(agent, 2000, 1)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        outcomes = fuzz(agent, count, 2)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        check(agent)
        agent.engine.close()  # type: ignore[attr-defined]
    for outcome, times in outcomes.most_common():
        print(f"{times:>9}  {outcome}")
    print(f"{count} packets in {time.perf_counter() - start:.1f} s; memory grew by {grown} kB")


if __name__ == "__main__":
    main()
