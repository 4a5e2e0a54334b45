"""Capabilities: every vector, exact caveats, and chains judged as a naive checker does."""

import random
from itertools import pairwise
from typing import Any

import orjson
import pytest

from farthing.aether import capabilities, keys
from farthing.aether.capabilities import check_chain, covers, issue, parse_token
from farthing.aether.errors import CapabilityRefused, Code
from tests.aether.known import KEYS, NOW_NS, VECTORS, pubkey, seed
from tests.aether.naive import naive_chain

OWNER_SEED = bytes.fromhex(KEYS["owner_aether_seed"])
OWNER = KEYS["owner_aether_pubkey"]
TOKENS = VECTORS["tokens"]
WRITES = VECTORS["capability_writes"]
SINGLE = [
    *(TOKENS[name] for name in ("single", "without caveats", "third", "unicode", "times as text")),
    *TOKENS["chain"],
]


def allows(
    chain: object,
    author: str = pubkey("delegate"),
    kind: int = 1,
    now_ns: int = NOW_NS,
    ip: str | None = None,
) -> bool:
    try:
        check_chain(chain, owner=OWNER, author=author, kind=kind, now_ns=now_ns, ip=ip)
    except CapabilityRefused:
        return False
    return True


def token(caveats: dict[str, object], capability: str = "relay:events:write") -> dict[str, Any]:
    return issue(OWNER_SEED, subject=pubkey("delegate"), capability=capability, caveats=caveats)


# The vectors.


@pytest.mark.parametrize("vector", SINGLE, ids=lambda vector: vector["canonical"][:50])
def test_tokens_of_the_vectors_are_read_and_signed_as_written(vector: dict[str, Any]) -> None:
    value = vector["token"]
    unsigned = {name: value[name] for name in ("issuer", "subject", "capability", "caveats")}

    assert capabilities.canonical_json(**unsigned).decode() == vector["canonical"]
    found = parse_token(value)
    assert found.id == vector["token_id"]
    assert keys.is_signed(found.issuer, bytes.fromhex(found.id), found.sig)


def test_we_issue_the_vectors_token() -> None:
    value = TOKENS["single"]["token"]

    assert token(value["caveats"]) == value


@pytest.mark.parametrize("name", ["single", "without caveats", "times as text"])
def test_good_tokens_let_the_delegate_write(name: str) -> None:
    chain = [TOKENS[name]["token"]]

    for event in WRITES["by_delegate"]:
        assert allows(chain, event["pubkey"], event["kind"])
    assert not allows(chain, pubkey("stranger"))


def test_the_chain_lets_the_delegates_delegate_write_one_kind() -> None:
    chain = [each["token"] for each in TOKENS["chain"]]

    for event in WRITES["by_sub"]:
        assert allows(chain, event["pubkey"], event["kind"])
    other = WRITES["by_sub_other_kind"]
    assert not allows(chain, other["pubkey"], other["kind"])
    assert allows([*chain, TOKENS["third"]["token"]], pubkey("agent"))


def test_a_grant_names_every_token_to_count() -> None:
    grant = check_chain(
        [each["token"] for each in TOKENS["chain"]],
        owner=OWNER,
        author=pubkey("sub"),
        kind=1,
        now_ns=NOW_NS,
        ip=None,
    )

    assert grant.uses == ((TOKENS["chain"][0]["token_id"], 2), (TOKENS["chain"][1]["token_id"], 1))


@pytest.mark.parametrize("name", TOKENS["refused"])
def test_a_chain_that_breaks_a_rule_allows_nothing(name: str) -> None:
    assert not allows(TOKENS["refused"][name])


# Caveats.


@pytest.mark.parametrize("as_text", [False, True])
def test_both_ends_of_a_tokens_time_are_inclusive(as_text: bool) -> None:
    start: int | str = str(NOW_NS) if as_text else NOW_NS
    end: int | str = str(NOW_NS + 5) if as_text else NOW_NS + 5
    chain = [token({"not_before": start, "not_after": end})]

    assert [allows(chain, now_ns=NOW_NS + offset) for offset in (-1, 0, 5, 6)] == [
        False,
        True,
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("networks", "ip", "expected"),
    [
        ("192.0.2.0/24", "192.0.2.255", True),
        ("192.0.2.0/24", "192.0.3.0", False),
        ("192.0.2.7", "192.0.2.7", True),
        ("192.0.2.7", "192.0.2.8", False),
        (["10.0.0.0/8", "2001:db8::/32"], "2001:db8:1::1", True),
        (["10.0.0.0/8", "2001:db8::/32"], "10.255.0.1", True),
        (["10.0.0.0/8", "2001:db8::/32"], "2001:db9::1", False),
        ("192.0.2.0/24", "::ffff:192.0.2.1", True),
        ("0.0.0.0/0", "::1", False),
        ("192.0.2.0/24", None, False),
        ("0.0.0.0/0", "unknown", False),
        ([], "192.0.2.1", False),
    ],
)
def test_a_token_allows_only_addresses_in_its_networks(
    networks: object, ip: str | None, expected: bool
) -> None:
    assert allows([token({"ip": networks})], ip=ip) is expected


@pytest.mark.parametrize(
    "caveats",
    [
        None,
        [],
        {"max_uses": 0},
        {"max_uses": -1},
        {"max_uses": "2"},
        {"max_uses": 1.0},
        {"max_uses": None},
        {"max_uses": 2**64},
        {"not_before": True},
        {"not_before": -1},
        {"not_after": 1.5},
        {"not_after": "soon"},
        {"not_after": None},
        {"ip": "nowhere"},
        {"ip": "10.0.0.0/33"},
        {"ip": "10.0.0.0/255.0.0.0"},
        {"ip": "fe80::1%eth0"},
        {"ip": 5},
        {"ip": ["10.0.0.0/8", 5]},
        {"ip": {"10.0.0.0/8": 1}},
        {"ip": None},
        {"MAX_USES": 1},
        {"": 1},
    ],
    ids=repr,
)
def test_malformed_and_unknown_caveats_refuse(caveats: Any) -> None:
    value = {**TOKENS["without caveats"]["token"], "caveats": caveats}

    with pytest.raises(CapabilityRefused):
        parse_token(value)
    if isinstance(caveats, dict):
        with pytest.raises(CapabilityRefused):
            token(caveats)


def test_a_child_does_not_widen_what_its_parent_allows() -> None:
    """Caveats intersect: a later end in the child is no error, and means nothing."""
    root = token({"not_after": NOW_NS})
    child = issue(
        seed("delegate"),
        subject=pubkey("sub"),
        capability="relay:events:write",
        caveats={"not_after": NOW_NS + 10},
    )

    assert allows([root, child], pubkey("sub"), now_ns=NOW_NS)
    assert not allows([root, child], pubkey("sub"), now_ns=NOW_NS + 1)


# Coverage.


@pytest.mark.parametrize(
    ("capability", "expected"),
    [
        ("relay", True),
        ("relay:events", True),
        ("relay:events:write", True),
        ("relay:events:write:1", True),
        ("relay:events:write:01", False),
        ("relay:events:write:1:", False),
        ("relay:events:write:", False),
        ("relay:events:write:10", False),
        ("relay:events:wri", False),
        ("relay:events:write:*", False),
        ("RELAY", False),
        ("", False),
        (":", False),
    ],
)
def test_a_capability_covers_what_it_is_a_segment_prefix_of(
    capability: str, expected: bool
) -> None:
    assert covers(capability, "relay:events:write:1") is expected
    assert allows([token({}, capability)]) is expected


# Shape.


@pytest.mark.parametrize(
    "change",
    [
        {"issuer": OWNER.upper()},
        {"subject": "00"},
        {"sig": None},
        {"capability": 5},
        {"capability": "relay:\ud800"},
        {"extra": 1},
    ],
    ids=repr,
)
def test_malformed_tokens_are_refused(change: dict[str, object]) -> None:
    assert not allows([{**TOKENS["without caveats"]["token"], **change}])


@pytest.mark.parametrize("chain", [None, {}, "token", 5, [5], [[]], [None]])
def test_malformed_chains_are_refused(chain: object) -> None:
    assert not allows(chain)


def long_chain(length: int, capability: str = "relay") -> tuple[list[dict[str, Any]], str]:
    """A good chain of this length, and the author at its end."""
    seeds = [OWNER_SEED, *(bytes([number]) * 32 for number in range(1, length + 1))]
    chain = [
        issue(giver, subject=keys.public_key(taker), capability=capability, caveats={})
        for giver, taker in pairwise(seeds)
    ]
    return chain, keys.public_key(seeds[-1])


def test_a_chain_has_at_most_eight_tokens() -> None:
    assert allows(*long_chain(8))
    assert not allows(*long_chain(9))


def sized_chain(octets: int) -> list[dict[str, Any]]:
    """A good chain of exactly this many octets of JSON, for a writer at ::1."""
    smallest = len(orjson.dumps([token({"ip": ["1.1.1.1"]})]))
    networks, rest = divmod(octets - smallest, len(',"::1"'))
    longer = ["1.1.1.1", "11.1.1.1", "11.1.1.11", "11.1.11.11", "11.11.11.11", "111.11.11.11"]
    return [token({"ip": [longer[rest], *["::1"] * networks]})]


def test_a_chain_has_at_most_8_kb() -> None:
    assert len(orjson.dumps(sized_chain(8192))) == 8192
    assert allows(sized_chain(8192), ip="::1")
    assert not allows(sized_chain(8193), ip="::1")


def test_a_weak_owner_grants_nothing() -> None:
    weak = "01" + "00" * 31
    value = {**TOKENS["without caveats"]["token"], "issuer": weak, "sig": "01" + "00" * 63}

    with pytest.raises(CapabilityRefused, match="signature") as caught:
        check_chain([value], owner=weak, author=pubkey("delegate"), kind=1, now_ns=NOW_NS, ip=None)
    assert caught.value.code is Code.CAPABILITY_REFUSED


# A naive checker.

SEEDS = [OWNER_SEED, *(seed(name) for name in ("agent", "delegate", "sub"))]
PUBKEYS = [keys.public_key(each) for each in SEEDS]
CAPABILITIES = ["relay", "relay:events", "relay:events:write", "relay:events:write:1", "relay:e"]


def random_chain(dice: random.Random) -> tuple[list[dict[str, Any]], str]:
    chain: list[dict[str, Any]] = []
    issuer, width = 0, 0
    for _ in range(dice.randint(1, 3)):
        if dice.random() < 0.1:
            issuer = dice.randrange(len(SEEDS))
        subject = dice.randrange(len(SEEDS))
        width = dice.randint(width, 3) if dice.random() < 0.9 else dice.randrange(5)
        caveats: dict[str, object] = {}
        if dice.random() < 0.3:
            caveats["not_before"] = NOW_NS + dice.choice([-1, 0, 0, 1])
        if dice.random() < 0.3:
            caveats["not_after"] = str(NOW_NS + dice.choice([-1, 0, 0, 1]))
        if dice.random() < 0.3:
            caveats["ip"] = dice.choice(["10.0.0.0/8", ["10.0.0.1", "::1"], "192.0.2.0/24"])
        if dice.random() < 0.2:
            caveats["max_uses"] = dice.randint(1, 3)
        chain.append(
            issue(
                SEEDS[issuer],
                subject=PUBKEYS[subject],
                capability=CAPABILITIES[width],
                caveats=caveats,
            )
        )
        if dice.random() < 0.05:
            chain[-1]["sig"] = chain[0]["sig"]
        if dice.random() < 0.05:
            chain.append(dict(dice.choice(chain)))
        issuer = subject
        width = min(width, 3)
    return chain, PUBKEYS[issuer if dice.random() < 0.9 else 0]


def test_chains_are_judged_as_the_naive_checker_does() -> None:
    dice = random.Random(7)
    allowed = 0
    for _ in range(1500):
        chain, author = random_chain(dice)
        kind, ip = dice.choice([1, 1, 1, 7]), dice.choice([None, "10.0.0.1", "10.0.0.1", "::1"])

        expected = naive_chain(chain, owner=OWNER, author=author, kind=kind, now_ns=NOW_NS, ip=ip)

        assert allows(chain, author, kind, ip=ip) is expected, chain
        allowed += expected
    assert 300 < allowed < 1200  # both answers are common, or this says little
