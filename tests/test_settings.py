"""Settings: read from the environment, refused by name, and never shown where they are secret."""

import re
from dataclasses import fields
from typing import Any

import pytest

from farthing.nostr.events import public_key_of
from farthing.nostr.nip19 import Npub, Nsec, encode
from farthing.settings import InvalidSetting, Settings, declared, documentation
from farthing.settings.values import READERS

KEY = "0" * 63 + "1"
PUBKEY = public_key_of(bytes.fromhex(KEY))


def documented() -> list[tuple[str, str, str]]:
    return [row for rows in documentation().values() for row in rows]


def test_an_empty_environment_gives_the_defaults() -> None:
    assert Settings.from_env({}) == Settings()
    assert Settings.from_env({"PATH": "/bin", "FARTHINGS": "x"}) == Settings()


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ("FARTHING_PRICE_PER_BYTES", "FARTHING_PRICE_PER_BYTE"),
        ("FARTHING_FREE_PUBKEY", "FARTHING_FREE_PUBKEYS"),
        ("FARTHING_MAX_PACKETS", "FARTHING_MAX_PACKET"),
        ("FARTHING_port", "FARTHING_PORT"),
    ],
)
def test_a_misspelt_name_is_refused_with_the_nearest_one(misspelt: str, meant: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        Settings.from_env({misspelt: "1"})
    assert str(refused.value).startswith(f"there is no setting {misspelt}")
    if meant != "FARTHING_PORT":
        assert str(refused.value).endswith(f"the nearest is {meant}")


@pytest.mark.parametrize(
    "name", ["FARTHING_CONFIG", "FARTHING_CONNECTIONS_URL", "FARTHING_SECRET_KEY_ARN"]
)
def test_variables_of_other_readers_are_left_to_them(name: str) -> None:
    assert Settings.from_env({name: "x"}) == Settings()


def test_a_variable_for_a_secret_is_known_for_secrets_only() -> None:
    with pytest.raises(InvalidSetting, match="FARTHING_PORT_ARN"):
        Settings.from_env({"FARTHING_PORT_ARN": "x"})


def test_each_type_is_read() -> None:
    settings = Settings.from_env(
        {
            "FARTHING_NAME": "My relay",
            "FARTHING_PORT": "8080",
            "FARTHING_FREE_PUBKEYS": f" {PUBKEY} ,{'a' * 64},",
            "FARTHING_BLOCKED_PUBKEYS": "",
        }
    )

    assert settings.name == "My relay"
    assert settings.port == 8080
    assert settings.free_pubkeys == {PUBKEY, "a" * 64}
    assert settings.blocked_pubkeys == frozenset()


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("FARTHING_PORT", "http"),
        ("FARTHING_PORT", ""),
        ("FARTHING_PORT", "1.5"),
        ("FARTHING_PORT", "-1"),
        ("FARTHING_MAX_LIMIT", "-1"),
        ("FARTHING_FEED_SECONDS", "0"),
        ("FARTHING_FEED_SECONDS", str(2**63)),  # more than a socket can wait
        ("FARTHING_FEED_RETRY_SECONDS", "0"),
        ("FARTHING_BROADCAST_RETRY_SECONDS", str(2**63)),
        ("FARTHING_BROADCAST_RELAYS", str(2**63)),
        ("FARTHING_MAX_LIMIT", str(2**64)),
        ("FARTHING_SUBSCRIPTION_MAX_STORED", "10001"),
        ("FARTHING_PRICE_PER_BYTE", str(2**64)),
        ("FARTHING_PRICE_KINDS", f'{{"1": {2**64}}}'),
        ("FARTHING_FREE_PUBKEYS", "npub1xyz"),
        ("FARTHING_BLOCKED_PUBKEYS", f"{PUBKEY.upper()}"),
        ("FARTHING_SECRET_KEY", "nsec1xyz"),
        ("FARTHING_SECRET_KEY", "A" * 64),
        ("FARTHING_SECRET_KEY", "0" * 64),  # not a key of the curve
        ("FARTHING_SECRET_KEY", "f" * 64),
        ("FARTHING_SECRET_KEY", encode(Npub(PUBKEY))),
        ("FARTHING_RELAY_URL", "http://relay.example"),
        ("FARTHING_RELAY_URL", "relay.example"),
        ("FARTHING_RELAY_URL", "wss://"),
        ("FARTHING_RELAY_URL", "wss://relay.example:99999"),
        ("FARTHING_RELAY_URL", "wss://[relay"),
        ("FARTHING_RELAY_URL", "wss://me:secret@relay.example"),
        ("FARTHING_WEB_URL", "wss://relay.example"),
        ("FARTHING_SETTLEMENT_URL", "engine.example"),
        ("FARTHING_PROFILE", "{broken"),
        ("FARTHING_PROFILE", '"a text"'),
        ("FARTHING_PRICE_KINDS", "[1]"),
        ("FARTHING_PRICE_KINDS", '{"note": 1}'),
        ("FARTHING_PEER_WITH_FOLLOWS", "yes"),
        ("FARTHING_HOST", ""),
        ("FARTHING_DATA", " "),
        ("FARTHING_ASSET_CODE", ""),
        ("FARTHING_ASSET_SCALE", "256"),
        ("FARTHING_FORWARD_FEE_PPM", "1000001"),
        ("FARTHING_MAX_SHRINK_PERCENT", "101"),
        ("FARTHING_TABLE_PREFIX", "a b"),
        ("FARTHING_TRUSTED_PROXIES", "127.0.0.1, proxy"),
        ("FARTHING_TRUSTED_PROXIES", "10.0.0.1/8"),
        ("FARTHING_METRICS_TOKEN", "short"),
        ("FARTHING_LOG_LEVEL", "loud"),
        ("FARTHING_LOG_FORMAT", "xml"),
        ("FARTHING_ILP_ADDRESS", "not an address"),
        ("FARTHING_PORT", "\u0667"),
    ],
)
def test_a_wrong_value_is_refused_by_name(variable: str, text: str) -> None:
    with pytest.raises(InvalidSetting, match=variable):
        Settings.from_env({variable: text})


def test_keys_may_have_their_readable_form() -> None:
    settings = Settings.from_env(
        {
            "FARTHING_SECRET_KEY": encode(Nsec(KEY)),
            "FARTHING_FREE_PUBKEYS": f"{encode(Npub(PUBKEY))}, {'a' * 64}",
        }
    )
    assert settings.secret_key == KEY
    assert settings.free_pubkeys == {PUBKEY, "a" * 64}


@pytest.mark.parametrize(
    ("given", "socket", "http"),
    [
        ({"host": "0.0.0.0"}, "ws://127.0.0.1:7777", "http://127.0.0.1:7777"),
        ({"host": "::"}, "ws://[::1]:7777", "http://[::1]:7777"),
        ({"host": "::1", "port": 80}, "ws://[::1]:80", "http://[::1]:80"),
        ({"host": "10.0.0.1"}, "ws://10.0.0.1:7777", "http://10.0.0.1:7777"),
        (
            {"host": "0.0.0.0", "relay_url": "wss://relay.example/"},
            "wss://relay.example",
            "https://relay.example",
        ),
        ({"web_url": "https://web.example/"}, "ws://127.0.0.1:7777", "https://web.example"),
    ],
)
def test_announced_urls_are_ones_that_others_can_use(
    given: dict[str, Any], socket: str, http: str
) -> None:
    settings = Settings(**given)
    assert (settings.socket_url, settings.http_url) == (socket, http)
    assert settings.ilp_url == f"{http}/ilp"


def test_every_type_of_a_setting_has_a_reader() -> None:
    assert {setting.type for setting in declared()} <= READERS.keys()


def test_each_description_can_be_read_alone() -> None:
    for variable, _, about in documented():
        assert about[0].isupper(), variable
        assert not re.match(r"(And|Or|But|Likewise|Also|That|Those|It|They)\b", about), variable
        assert not re.search(r"\b(likewise|one of them|on top of that)\b", about), variable


def test_the_secret_is_not_shown() -> None:
    wrong = "not-a-key-but-secret"
    with pytest.raises(InvalidSetting) as refused:
        Settings(secret_key=wrong)

    assert wrong not in str(refused.value)
    with pytest.raises(InvalidSetting) as refused:
        Settings.from_env({"FARTHING_SECRET_KEY": f"nsec1{wrong}"})
    assert wrong not in str(refused.value)
    with pytest.raises(InvalidSetting) as refused:
        Settings(metrics_token="secret but short")
    assert "secret but" not in str(refused.value)
    assert KEY not in repr(Settings(secret_key=KEY))
    assert KEY not in str(Settings(secret_key=KEY))


def test_public_key_and_ilp_address_follow_from_the_secret_key() -> None:
    settings = Settings(secret_key=KEY)

    assert settings.pubkey == PUBKEY
    assert settings.own_ilp_address == f"g.agent.{PUBKEY}"
    assert Settings(ilp_address="g.mine").own_ilp_address == "g.mine"


def test_writing_is_free_at_price_nought() -> None:
    assert Settings(price_per_byte=0).is_free
    assert not Settings(price_per_byte=1).is_free


def test_the_documentation_covers_every_setting() -> None:
    rows = documented()

    assert [variable for variable, _, _ in rows] == [
        f"FARTHING_{setting.name.upper()}" for setting in declared()
    ]
    assert all(about for _, _, about in rows)
    assert {setting.name for setting in declared()} == {each.name for each in fields(Settings)} - {
        "deployed"
    }
    assert ("FARTHING_PORT", "7777", "Port of the local server, for HTTP and WebSocket") in rows
