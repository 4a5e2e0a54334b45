"""COUNT (NIP-45)."""

from collections.abc import Callable

import pytest

from farthing.context import Agent
from farthing.nostr.events import public_key_of
from tests.relay.world import ALICE, BOB, OWNER, START, Client, signed

AgentWith = Callable[..., Agent]


def fill(client: Client, number: int, **changes: object) -> None:
    for each in range(number):
        assert client.publish(signed(content=str(each), **changes))[2]


def count(client: Client, *filters: object) -> object:
    ((kind, id, body),) = client.send("COUNT", "x", *filters)
    assert id == "x"
    return body if kind == "COUNT" else (kind, body)


def test_counts_what_matches_any_filter(client: Client) -> None:
    fill(client, 3)
    fill(client, 2, kind=7)
    fill(client, 1, secret=BOB)

    assert count(client, {}) == {"count": 6}
    assert count(client, {"kinds": [7]}) == {"count": 2}
    assert count(client, {"kinds": [1]}, {"authors": [public_key_of(BOB)]}) == {"count": 4}
    assert count(client, {"kinds": [8]}) == {"count": 0}


def test_limit_has_no_part_in_it(client: Client) -> None:
    fill(client, 3)

    assert count(client, {"limit": 1}) == count(client, {"limit": 0}) == {"count": 3}


def test_a_large_count_is_an_estimate(agent_with: AgentWith) -> None:
    client = Client(agent_with(count_exactly=3))
    fill(client, 5)

    assert count(client, {"kinds": [1]}) == {"count": 5, "approximate": True}
    assert count(client, {"kinds": [1], "since": START + 1}) == {"count": 0}


def test_leaves_no_subscription_behind(client: Client) -> None:
    count(client, {})

    assert client.agent.subscriptions.ids(client.id) == set()


@pytest.mark.parametrize(
    ("filters", "reason"),
    [
        ([], "invalid: expected a filter with COUNT, got none"),
        ([5], "invalid: filter is not an object"),
        ([{"kinds": ["1"]}], "invalid: kinds holds something other than numbers from 0 to 65535"),
        ([{}] * 21, "invalid: expected at most 20 filters, got 21"),
        ([{"kinds": [4]}], "auth-required: these kinds are only for those they are sent to"),
    ],
)
def test_a_wrong_count_is_refused_with_the_reason(
    agent_with: AgentWith, filters: list[object], reason: str
) -> None:
    assert count(Client(agent_with()), *filters) == ("CLOSED", reason)


def test_too_broad_a_filter_is_refused(agent_with: AgentWith) -> None:
    client = Client(agent_with(max_scan=3))
    fill(client, 5)

    author = public_key_of(ALICE)
    kind, reason = count(client, {"authors": [author], "#t": ["nowhere"]})

    assert kind == "CLOSED"
    assert reason.startswith("error: filter is too broad")


def test_private_events_are_counted_for_their_parties_only(client: Client) -> None:
    fill(client, 1)
    fill(client, 2, kind=4, tags=[["p", public_key_of(BOB)]])

    assert count(client, {}) == {"count": 1}
    client.authenticate(OWNER)
    assert count(client, {}) == {"count": 1}
    client.authenticate(BOB)
    assert count(client, {}) == {"count": 3}
