"""Reading the graph at followed agents' relays."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from farthing.agent.audit import audit
from farthing.agent.gather import gather
from farthing.agent.places import is_relay_url
from farthing.context import Agent
from farthing.nostr.events import public_key_of
from farthing.ports.relays import ReadLimits, RelayFailed
from farthing.store.ledger import Peer, hash_token
from farthing.store.sqlite import SqliteEngine
from tests.relay.world import ALICE, BOB, OWNER, Clock, make_agent, signed

ALICE_KEY, BOB_KEY = public_key_of(ALICE), public_key_of(BOB)


class Elsewhere:
    """Other relays, by their URLs: what each answers, whatever it is asked."""

    def __init__(self, **answers: list[Any]) -> None:
        self.answers = {f"ws://{name}.example": found for name, found in answers.items()}
        self.asked: list[tuple[str, Any]] = []

    def read(self, url: str, filters: Sequence[Any], limits: ReadLimits) -> Iterator[Any]:
        self.asked.append((url, filters))
        if url not in self.answers:
            raise RelayFailed("nobody is there")
        return iter(self.answers[url][: limits.events])


@pytest.fixture
def agent(sqlite: SqliteEngine, clock: Clock) -> Agent:
    return make_agent(sqlite, clock, secret_key=OWNER.hex(), price_per_byte=10)


def follow(agent: Agent, *tags: list[str]) -> None:
    agent.events.save(signed(kind=3, secret=OWNER, tags=[["p", *tag] for tag in tags]))


CLAIM = [
    ["ilp_address", "g.agent.x"],
    ["ilp_endpoint", "https://x.example/ilp"],
    ["asset_code", "USD"],
    ["asset_scale", "9"],
]


def plain(event: Any) -> dict[str, Any]:
    return {**event.as_dict(), "tags": [list(tag) for tag in event.tags]}


def test_what_a_followed_agents_relay_knows_is_kept(agent: Agent) -> None:
    follow(agent, [ALICE_KEY, "ws://alice.example"])
    own = signed(kind=10032, secret=ALICE, tags=[["ilp_address", "g.agent.alice"]])
    of_bob = signed(kind=10032, secret=BOB, tags=CLAIM)
    there = Elsewhere(alice=[plain(own), plain(of_bob)])

    found = gather(replace(agent, relays=there))

    assert (found.relays, found.failed, found.events) == (1, 0, 2)
    assert agent.events.get(own.id) is not None
    assert agent.events.get(of_bob.id) is not None
    [(url, filters)] = there.asked
    assert url == "ws://alice.example"
    assert filters[0] == {"authors": [ALICE_KEY], "kinds": [3, 10002, 10032, 10033]}
    # The owner may bring in what it likes: nothing of it is unpaid.
    assert audit(agent).differences == []


def test_routes_are_heard_only_from_the_followed(agent: Agent) -> None:
    follow(agent, [ALICE_KEY, "ws://alice.example"])
    hers, of_bob = (signed(kind=10033, secret=secret) for secret in (ALICE, BOB))
    there = Elsewhere(alice=[plain(hers), plain(of_bob)])

    assert gather(replace(agent, relays=there)).events == 1

    assert agent.events.get(hers.id) is not None
    assert agent.events.get(of_bob.id) is None
    [(_, filters)] = there.asked
    assert filters[1] == {"kinds": [3, 10002, 10032], "limit": agent.settings.max_gathered_events}


@pytest.mark.parametrize(
    "claim",
    [
        {"tags": [["ilp_address", "g.agent.x"], ["price_per_byte", "10"]]},
        {"content": '{"ilpAddress":"g.agent.x","btpEndpoint":"wss://x.example"}'},
    ],
    ids=["tags", "content"],
)
def test_an_agent_behind_the_first_hop_needs_an_address_alone(
    agent: Agent, claim: dict[str, Any]
) -> None:
    follow(agent, [ALICE_KEY, "ws://alice.example"])
    of_bob = signed(kind=10032, secret=BOB, **claim)

    gather(replace(agent, relays=Elsewhere(alice=[plain(of_bob)])))

    assert agent.events.get(of_bob.id) is not None


def test_a_second_round_keeps_nothing_twice(agent: Agent) -> None:
    follow(agent, [ALICE_KEY, "ws://alice.example"])
    there = Elsewhere(alice=[plain(signed(kind=10033, secret=ALICE))])
    assert gather(replace(agent, relays=there)).events == 1
    assert gather(replace(agent, relays=there)).events == 0


def test_whatever_else_a_relay_sends_is_left_out(agent: Agent, clock: Clock) -> None:
    follow(agent, [ALICE_KEY, "ws://alice.example"])
    forged = {**plain(signed(kind=10032, secret=ALICE)), "content": "altered"}
    wrong = [
        None, 5, {}, {"kind": 10032}, forged,
        plain(signed(kind=1, secret=ALICE)),  # not of the graph
        plain(signed(kind=3, secret=OWNER, created_at=clock.now + 5)),  # ours: we know better
        plain(signed(kind=3, secret=BOB, created_at=clock.now + 10**6)),  # from the future
    ]  # fmt: skip
    assert gather(replace(agent, relays=Elsewhere(alice=wrong))).events == 0
    assert agent.events.get(forged["id"]) is None


def test_a_relay_that_does_not_answer_is_passed_over(agent: Agent) -> None:
    follow(agent, [BOB_KEY, "ws://gone.example"], [ALICE_KEY, "ws://alice.example"])
    there = Elsewhere(alice=[plain(signed(kind=3, secret=ALICE))])
    found = gather(replace(agent, relays=there))
    assert (found.relays, found.failed, found.events) == (1, 1, 1)


def test_a_stranger_without_an_address_is_not_kept(agent: Agent) -> None:
    """Nothing is paid for it, and no route could lead through it."""
    follow(agent, [ALICE_KEY, "ws://alice.example"])
    lists = [plain(signed(bytes([7, number] * 16), kind=3)) for number in range(3)]
    no_claim = plain(signed(kind=10032, secret=BOB, content="x" * 1000))

    assert gather(replace(agent, relays=Elsewhere(alice=[*lists, no_claim]))).events == 0


def test_a_strangers_list_is_kept_once_the_stranger_claims_an_address(agent: Agent) -> None:
    follow(agent, [ALICE_KEY, "ws://alice.example"])
    claim = signed(kind=10032, secret=BOB, tags=CLAIM)
    list_of_bob = signed(kind=3, secret=BOB, tags=[["p", ALICE_KEY]])

    assert gather(replace(agent, relays=Elsewhere(alice=[plain(claim)]))).events == 1
    assert gather(replace(agent, relays=Elsewhere(alice=[plain(list_of_bob)]))).events == 1


def test_a_strangers_large_event_is_not_kept_and_a_followed_agents_is(agent: Agent) -> None:
    follow(agent, [ALICE_KEY, "ws://alice.example"])
    strangers = signed(kind=10032, secret=BOB, tags=CLAIM, content="x" * 70_000)
    own = signed(kind=10032, secret=ALICE, tags=CLAIM, content="x" * 70_000)

    assert (
        gather(replace(agent, relays=Elsewhere(alice=[plain(strangers), plain(own)]))).events == 1
    )

    assert agent.events.get(own.id) is not None


def test_one_event_that_no_item_has_room_for_does_not_end_the_round(
    sqlite: SqliteEngine, clock: Clock
) -> None:
    agent = make_agent(
        sqlite, clock, secret_key=OWNER.hex(), max_content_length=10**6, max_gathered_bytes=10**7
    )
    follow(agent, [ALICE_KEY, "ws://alice.example"])
    huge = signed(kind=10032, secret=ALICE, tags=CLAIM, content="x" * 600_000)
    small = signed(kind=10033, secret=ALICE)

    assert gather(replace(agent, relays=Elsewhere(alice=[plain(huge), plain(small)]))).events == 1


def test_only_places_that_the_owner_names_are_asked(agent: Agent) -> None:
    """Neither what others write into their lists nor what an agent says of itself leads us away."""
    agent.events.save(signed(kind=3, secret=ALICE, tags=[["p", BOB_KEY, "ws://evil.example"]]))
    agent.events.save(
        signed(kind=10032, secret=BOB, tags=[["ilp_endpoint", "http://evil.example/ilp"]])
    )
    follow(agent, [BOB_KEY], [ALICE_KEY, "http://alice.example"], ["no key", "ws://x.example"])
    there = Elsewhere()
    gather(replace(agent, relays=there))
    assert there.asked == []

    agent.ledger.add_peer(
        Peer("bob", hash_token("t"), endpoint="https://bob.example:8443/ilp", pubkey=BOB_KEY)
    )
    gather(replace(agent, relays=there))
    assert [url for url, _ in there.asked] == ["wss://bob.example:8443"]


def test_the_settings_bound_a_round(sqlite: SqliteEngine, clock: Clock) -> None:
    agent = make_agent(
        sqlite, clock, secret_key=OWNER.hex(), max_gathered_relays=2, max_gathered_events=3
    )
    secrets = [bytes([9, number] * 16) for number in range(4)]
    follow(agent, *([public_key_of(each), "ws://one.example"] for each in secrets))
    many = [plain(signed(bytes([7, number] * 16), kind=10032, tags=CLAIM)) for number in range(10)]
    there = Elsewhere(one=many)
    found = gather(replace(agent, relays=there))
    assert len(there.asked) == 2
    assert found.events == 3


@pytest.mark.parametrize(
    ("url", "valid"),
    [
        ("ws://a.example", True),
        ("wss://a.example:8443/path", True),
        ("http://a.example", False),
        ("ws://user@a.example", False),
        ("ws://a.example\\@b", False),
        ("ws://", False),
        ("", False),
    ],
)
def test_only_plain_websocket_urls_are_relays(url: str, valid: bool) -> None:
    assert is_relay_url(url) is valid
