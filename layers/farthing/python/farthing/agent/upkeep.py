"""The agent's periodic duties: read the announcements of followed agents, make peers of them, renew
and announce our routes, and settle our debts."""

import logging
from collections.abc import Callable, Sequence

from farthing.agent.announce import announce_routes
from farthing.agent.follows import drop_unfollowed, propose_peers
from farthing.agent.gather import gather
from farthing.agent.identity import publish_identity
from farthing.agent.lapses import lapse_idle_purses
from farthing.connector.settlement import settle_payables
from farthing.context import Agent
from farthing.ports.meter import Metric

log = logging.getLogger("farthing")


def publish_announcements(agent: Agent) -> str:
    return f"published {len(publish_identity(agent))} events of our own"


def gather_announcements(agent: Agent) -> str:
    found = gather(agent)
    return f"gathered {found.events} events at {found.relays} relays, {found.failed} do not answer"


def make_peers(agent: Agent) -> str:
    made = [proposed for proposed in propose_peers(agent) if proposed.is_new]
    return f"proposed {len(made)} peers, dropped {drop_unfollowed(agent)}"


def renew_routes(agent: Agent) -> str:
    renewed = agent.routes.renew(agent.now)
    if renewed:
        log.warning(
            "the routing table is days old: its routes are kept until the next table",
            extra={"routes": renewed},
        )
    return f"renewed {renewed} routes"


def offer_routes(agent: Agent) -> str:
    return "routes as before" if announce_routes(agent) is None else "announced our routes"


def settle(agent: Agent) -> str:
    return f"settled with {settle_payables(agent)} peers"


def lapse_purses(agent: Agent) -> str:
    return f"{lapse_idle_purses(agent)} purses lapsed"


Duty = Callable[[Agent], str]

# The order matters: gathered events make peers, and then routes through them are announced.
DUTIES: Sequence[Duty] = (
    publish_announcements,
    gather_announcements,
    make_peers,
    renew_routes,
    offer_routes,
    settle,
    lapse_purses,
)


def run_duties(agent: Agent, duties: Sequence[Duty] = DUTIES) -> dict[str, str]:
    """Run every duty. A failing duty does not stop the others. Returns the result of each, by its
    name."""
    done: dict[str, str] = {}
    for duty in duties:
        try:
            done[duty.__name__] = duty(agent)
        except Exception:
            log.exception("%s failed", duty.__name__)
            agent.meter.count(Metric.INTERNAL_ERRORS)
            done[duty.__name__] = "failed"
    return done
