"""The attacks of glue_jobs/poisoning.md, each in a world of its own, all in one rebuild.

In every world the source is `alice`, who follows `bob`; `mallory` attacks.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from glue_jobs.rebuild_routes import rebuild
from glue_jobs.rules import Refusal, Report
from tests.glue.world import NOW, World, claim, event, options, write_lines

RULES = options(max_fee=1000, max_routes_per_peer=4, max_announcement_age=3600)
DAY = 24 * 3600
ATTACKS: list[Callable[[World], None]] = []


class Route(NamedTuple):
    path: list[str]  # names
    fee: int
    hops: int


Table = dict[str, Route]  # by what follows the world's own prefix


def attack(build: Callable[[World], None]) -> Callable[[World], None]:
    ATTACKS.append(build)
    return build


def space_of(build: Callable[[World], None]) -> str:
    return build.__name__.replace("_", "-")


class Outcome:
    """What alice's tables are after all attacks at once."""

    def __init__(self, spark: SparkSession, path: Any) -> None:
        self.worlds = {space_of(build): World(space_of(build)) for build in ATTACKS}
        for build in ATTACKS:
            build(self.worlds[space_of(build)])
        events = [each for world in self.worlds.values() for each in world.events]
        sources = [world.key("alice") for world in self.worlds.values()]
        file = write_lines(path / "events.jsonl", events)
        frame, self.report = rebuild(spark, [file], sources, RULES)
        self._rows = frame.collect()

    def table(self, build: Callable[[World], None]) -> Table:
        world = self.worlds[space_of(build)]
        names = {world.key(name): name for name in NAMES}
        return {
            row.prefix.removeprefix(f"g.{world.space}."): Route(
                [names.get(each, each) for each in row.path], row.fee, row.hops
            )
            for row in self._rows
            if row.source == world.key("alice")
        }


NAMES = ["alice", "bob", "carol", "dave", "eve", "mallory", *(f"m{n}" for n in range(30))]


@pytest.fixture(scope="module")
def outcome(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return Outcome(spark, tmp_path_factory.mktemp("attacks"))


@pytest.fixture(scope="module")
def report(outcome: Outcome) -> Report:
    return outcome.report


# Announcing


@attack
def announce_what_nobody_claims(world: World) -> None:
    world.agent("alice", "bob")
    world.agent("bob")
    world.announce("bob", (world.address("bank"), 0, "direct"), (f"g.{world.space}", 0, "direct"))


def test_a_route_counts_only_to_a_claimed_address(outcome: Outcome, report: Report) -> None:
    assert set(outcome.table(announce_what_nobody_claims)) == {"bob"}
    assert report.refused[Refusal.UNCLAIMED_ROUTE] == 2


@attack
def announce_as_a_stranger(world: World) -> None:
    world.agent("alice", "bob")
    world.agent("bob", "mallory", fee=7)
    world.agent("mallory", fee=1)
    world.agent("eve")
    world.announce("mallory", (world.address("eve"), 0, "direct"))


def test_announcements_are_heard_only_from_the_followed(outcome: Outcome, report: Report) -> None:
    assert set(outcome.table(announce_as_a_stranger)) == {"bob", "mallory"}
    assert report.refused[Refusal.NOT_FOLLOWED] == 1


@attack
def announce_anothers_address_as_a_peer(world: World) -> None:
    world.agent("alice", "bob", "mallory")
    world.agent("bob", "eve", fee=5)
    world.agent("mallory")
    world.agent("eve")
    world.announce("mallory", (world.address("eve"), 1, "direct"))


def test_a_peer_may_undercut_but_not_own(outcome: Outcome) -> None:
    table = outcome.table(announce_anothers_address_as_a_peer)

    assert table["eve"] == Route(["mallory", "eve"], 1, 2), "the end is eve, or no fulfillment"


@attack
def bait_with_a_low_fee(world: World) -> None:
    world.agent("alice", "bob", "mallory")
    world.agent("mallory", "eve", "dave", fee=0)
    world.agent("bob", "eve", fee=50)
    world.agent("eve")
    world.agent("dave")
    world.announce("mallory", (world.address("eve"), 1000, "direct"),
                   (world.address("dave"), 900, "direct"))  # fmt: skip


def test_a_dear_announcement_stands_for_the_way_through_its_author(outcome: Outcome) -> None:
    table = outcome.table(bait_with_a_low_fee)

    assert table["eve"] == Route(["bob", "eve"], 50, 2), "the way around is found"
    assert table["dave"] == Route(["mallory", "dave"], 900, 2), "at what it really costs"


@attack
def announce_absurdly(world: World) -> None:
    world.agent("alice", "bob")
    for name in ("bob", "carol", "dave", "eve", "m1", "m2"):
        world.agent(name)
    where = [world.address(name) for name in ("carol", "dave", "eve", "m1", "m2")]
    world.announce("bob", (where[0], 1001, "direct"), (where[1], "9" * 30, "direct"),
                   (where[2], "-5", "direct"), (where[3], 1, "900-hop"),
                   (where[4], 1, "just around the corner"))  # fmt: skip


def test_absurd_fees_and_distances_are_dropped(outcome: Outcome, report: Report) -> None:
    table = outcome.table(announce_absurdly)

    assert set(table) == {"bob", "m2"}
    assert table["m2"].hops == RULES.hop_limit, "an unknown distance is a long one"
    assert report.refused[Refusal.FAR_ROUTE] == 1


@attack
def announce_long_ago(world: World) -> None:
    world.agent("alice", "bob", "carol")
    for name in ("bob", "carol", "dave", "eve"):
        world.agent(name)
    world.announce("bob", (world.address("eve"), 0, "direct"), created_at=NOW - 3601)
    world.announce("carol", (world.address("dave"), 0, "direct"), created_at=NOW + DAY)


def test_stale_and_postdated_announcements_are_dropped(outcome: Outcome, report: Report) -> None:
    assert set(outcome.table(announce_long_ago)) == {"bob", "carol"}
    assert report.refused[Refusal.STALE_ROUTE] == report.refused[Refusal.FUTURE_ROUTE] == 1


@attack
def announce_a_flood(world: World) -> None:
    world.agent("alice", "bob")
    world.agent("bob")
    names = [f"m{n}" for n in range(10)]
    for name in names:
        world.agent(name)
    routes = [(world.address(name), 1, "direct") for name in names]
    world.announce("bob", routes[0], *routes)


def test_a_peer_gets_so_many_routes_and_no_more(outcome: Outcome, report: Report) -> None:
    assert set(outcome.table(announce_a_flood)) == {"bob", "m0", "m1", "m2", "m3"}
    assert report.refused[Refusal.TOO_MANY_ROUTES] == 6
    assert report.refused[Refusal.DUPLICATE_ROUTE] == 1


# Claiming


@attack
def claim_a_far_victims_address(world: World) -> None:
    world.agent("alice", "bob")
    world.agent("bob", "mallory", "carol", "eve")
    world.agent("mallory", fee=0, address=world.address("carol"))
    world.agent("m1", address=world.address("bob"))
    world.agent("carol", "m1", "mallory")
    world.agent("dave", "carol")
    world.agent("eve")


def test_of_two_claims_the_nearer_then_the_more_followed(outcome: Outcome, report: Report) -> None:
    table = outcome.table(claim_a_far_victims_address)

    assert table["bob"].path == ["bob"]
    # carol and mallory are both two hops away, and two follow each: the lower key has it.
    world = outcome.worlds[space_of(claim_a_far_victims_address)]
    lower = min("carol", "mallory", key=world.key)
    assert table["carol"].path == ["bob", lower]
    assert report.refused[Refusal.FOREIGN_ADDRESS] >= 2


@attack
def claim_with_fewer_followers(world: World) -> None:
    low, high = sorted(["carol", "mallory"], key=world.key)
    world.agent("alice", "bob")
    world.agent("bob", low, high)
    world.agent(low, address=world.address("shop"))
    world.agent(high, address=world.address("shop"))
    world.agent("dave", high)


def test_more_followers_come_before_the_lower_key(outcome: Outcome) -> None:
    world = outcome.worlds[space_of(claim_with_fewer_followers)]
    high = max("carol", "mallory", key=world.key)

    assert outcome.table(claim_with_fewer_followers)["shop"].path == ["bob", high]


@attack
def claim_short_prefixes(world: World) -> None:
    world.agent("alice", "bob", "mallory", "m1", "m2", "m3", "m4")
    world.agent("bob")
    world.agent("mallory", address="g")
    world.agent("m1", address="g.agent")
    world.agent("m2", address=f"g.{world.space}")
    world.agent("m3", address="peer.mallory.x")
    world.agent("m4", address="g." + "x." * 40 + "x")


def test_prefixes_that_belong_to_nobody_are_refused(outcome: Outcome, report: Report) -> None:
    assert set(outcome.table(claim_short_prefixes)) == {"bob"}
    assert report.refused[Refusal.SHORT_PREFIX] == 2
    assert report.refused[Refusal.UNROUTABLE] == report.refused[Refusal.DEEP_ADDRESS] == 1


@attack
def claim_above_others(world: World) -> None:
    world.agent("alice", "bob", "dave")
    world.agent("bob", "mallory", address=world.address("uk.bob"))
    world.agent("mallory", address=world.address("uk"))
    world.agent("dave", "eve", address=world.address("uk.dave"))
    world.agent("eve", address=world.address("uk.eve"))


def test_a_prefix_above_a_nearer_address_is_refused(outcome: Outcome, report: Report) -> None:
    assert set(outcome.table(claim_above_others)) == {"uk.bob", "uk.dave", "uk.eve"}
    assert report.refused[Refusal.SHADOWING] >= 1


@attack
def claim_below_others(world: World) -> None:
    world.agent("alice", "bob")
    world.agent("bob", "mallory", "m1")
    world.agent("mallory", address=world.address("bob.shop"))
    world.agent("m1", address=world.address("bob.shop.till"))


def test_a_claim_below_a_nearer_address_neither_takes_nor_removes_it(
    outcome: Outcome, report: Report
) -> None:
    assert outcome.table(claim_below_others) == {"bob": Route(["bob"], 0, 1)}
    assert report.refused[Refusal.SHADOWED] >= 2


@attack
def claim_the_sources_own_address(world: World) -> None:
    world.agent("alice", "bob", "mallory", "m1")
    world.agent("bob")
    world.agent("mallory", address=world.address("alice"))
    world.agent("m1", address=world.address("alice.wallet"))


def test_nobody_takes_our_own_address(outcome: Outcome) -> None:
    assert set(outcome.table(claim_the_sources_own_address)) == {"bob"}


@attack
def claim_with_an_army(world: World) -> None:
    world.agent("alice", "bob", "dave")
    world.agent("bob", "carol", fee=3)
    world.agent("dave", "m0", fee=3)
    army = [f"m{n}" for n in range(30)]
    for name in army:
        world.agent(name, *army, address=world.address("carol"))
    world.agent("carol")


def test_an_army_that_follows_itself_wins_a_tie_of_distance_and_no_more(outcome: Outcome) -> None:
    """Followers are cheap to make; here all depends on dave, who follows one of the army."""
    table = outcome.table(claim_with_an_army)

    assert set(table) == {"bob", "dave", "carol"}
    assert table["carol"].path == ["dave", "m0"]


@attack
def ask_absurd_fees(world: World) -> None:
    world.agent("alice", "bob", "mallory", "m1", "m2", "m3", "m4")
    world.agent("bob", "eve", fee=1000)
    world.agent("mallory", "eve", "carol", fee=1001)
    world.agent("m1", "eve", "carol", fee="-1000")
    world.agent("m2", "eve", "carol", fee="9" * 40)
    world.agent("m3", "eve", "carol")
    world.claims_share("m3", 10**9)
    world.agent("m4", "dave")
    world.claims_share("m4", 1000)
    world.agent("eve")
    world.agent("carol")
    world.agent("dave")


def test_no_route_leads_through_an_agent_with_an_absurd_fee(
    outcome: Outcome, report: Report
) -> None:
    table = outcome.table(ask_absurd_fees)

    assert set(table) == {"bob", "mallory", "m1", "m2", "m3", "m4", "eve", "dave"}
    assert table["eve"] == Route(["bob", "eve"], 1000, 2)
    assert table["dave"] == Route(["m4", "dave"], 10, 2), "a share of a typical packet counts"
    assert report.refused[Refusal.ABSURD_FEE] == 4 + 2


# Replaying, circling, and nonsense


@attack
def replay_old_claims(world: World) -> None:
    world.agent("alice", "bob")
    world.agent("mallory")
    old = {"created_at": NOW - DAY}
    world.events.append(claim(world.key("bob"), world.address("old"), 0, **old))
    world.events.append(event(world.key("alice"), 3, [["p", world.key("mallory")]], **old))
    expired = [["ilp_address", world.address("gone")], ["expiration", str(NOW - 1)]]
    world.agent("bob", "mallory", "dave", fee=9)
    world.events.append(claim(world.key("dave"), world.address("dave"), **old))
    world.events.append(event(world.key("dave"), 10032, expired))


def test_older_events_change_nothing(outcome: Outcome) -> None:
    table = outcome.table(replay_old_claims)

    # Nor does an old claim come back when the one that replaced it expires.
    assert table == {"bob": Route(["bob"], 0, 1), "mallory": Route(["bob", "mallory"], 9, 2)}


@attack
def run_in_circles(world: World) -> None:
    world.agent("alice", "bob", "alice")
    world.agent("bob", "carol", "alice", "bob", fee=0)
    world.agent("carol", "bob", "alice", "carol", "dave", fee=0)
    world.agent("dave", "carol", "bob", fee=0)


def test_a_circle_of_follows_does_not_change_routes(outcome: Outcome) -> None:
    assert outcome.table(run_in_circles) == {
        "bob": Route(["bob"], 0, 1),
        "carol": Route(["bob", "carol"], 0, 2),
        "dave": Route(["bob", "carol", "dave"], 0, 3),
    }


@attack
def send_nonsense(world: World) -> None:
    alice, bob, m1, m2, m3 = (world.key(name) for name in ("alice", "bob", "m1", "m2", "m3"))
    world.agent("bob", "carol")
    world.agent("carol")
    tags: list[list[Any]] = [
        [], ["p"], ["p", None], ["p", 7], ["p", {"a": [1]}], ["p", bob + "\n"], ["p", bob.upper()],
        ["p", bob, "wss://x", "bob"], ["p", bob], ["P", m1], ["p", f" {m2}"], ["p", world.key("?")],
        ["p", m3], [None, bob], ["p", m1], ["p", m2],
    ]  # fmt: skip
    world.events.append(event(alice, 3, tags))
    world.events.append(event(m1, 10032, [["ilp_address"], ["ilp_address", world.address("m1")]]))
    world.events.append(event(m2, 10032, [["ilp_address", world.address("m2") + "\n"]]))
    world.events.append(event(m3, 10032, [], content='{"ilpAddress": {"g": 1}}'))
    world.events.append(
        event(bob, 10033, [["route"], ["route", None, None], ["route", 1, 2, 3], []])
    )


def test_nonsense_is_refused_and_changes_no_route(outcome: Outcome, report: Report) -> None:
    assert set(outcome.table(send_nonsense)) == {"bob", "carol"}
    assert report.refused[Refusal.NO_ADDRESS] == 3 + 1  # and `g`
    assert report.refused[Refusal.MALFORMED_ROUTE] == 3 + 1  # and a fee below nothing
    assert report.malformed == 0


def test_every_reason_has_its_attack(report: Report) -> None:
    assert set(report.refused) == {reason.value for reason in Refusal}
    assert any(Refusal.SHADOWED.value in line for line in report.lines())
