"""What an agent does by itself from time to time: see what followed agents say, make peers of
them, keep and offer our routes, and settle what we owe."""

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


def say_who_we_are(agent: Agent) -> str:
    return f"published {len(publish_identity(agent))} events of our own"


def see_what_followed_agents_say(agent: Agent) -> str:
    found = gather(agent)
    return f"gathered {found.events} events at {found.relays} relays, {found.failed} do not answer"


def make_peers(agent: Agent) -> str:
    made = [proposed for proposed in propose_peers(agent) if proposed.is_new]
    return f"proposed {len(made)} peers, dropped {drop_unfollowed(agent)}"


def keep_routes(agent: Agent) -> str:
    renewed = agent.routes.renew(agent.now)
    if renewed:
        log.warning("the routing table is days old: %d routes are kept until the next", renewed)
    return f"renewed {renewed} routes"


def offer_routes(agent: Agent) -> str:
    return "routes as before" if announce_routes(agent) is None else "announced our routes"


def settle(agent: Agent) -> str:
    return f"settled with {settle_payables(agent)} peers"


def let_purses_lapse(agent: Agent) -> str:
    return f"{lapse_idle_purses(agent)} purses lapsed"


Duty = Callable[[Agent], str]

# Peers come of what was gathered, and routes through them are offered after.
DUTIES: Sequence[Duty] = (
    say_who_we_are,
    see_what_followed_agents_say,
    make_peers,
    keep_routes,
    offer_routes,
    settle,
    let_purses_lapse,
)


def keep_up(agent: Agent, duties: Sequence[Duty] = DUTIES) -> dict[str, str]:
    """Do every duty; one that fails does not keep the others from being done."""
    done: dict[str, str] = {}
    for duty in duties:
        try:
            done[duty.__name__] = duty(agent)
        except Exception:
            log.exception("%s failed", duty.__name__)
            agent.meter.count(Metric.INTERNAL_ERRORS)
            done[duty.__name__] = "failed"
    return done
