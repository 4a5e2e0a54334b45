"""Settings: read from the environment, refused by name, and never shown where they are secret."""

from dataclasses import fields

import pytest

from farthing.nostr.events import public_key_of
from farthing.settings import InvalidSetting, Settings, documentation

KEY = "0" * 63 + "1"
PUBKEY = public_key_of(bytes.fromhex(KEY))


def test_an_empty_environment_gives_the_defaults() -> None:
    assert Settings.from_env({}) == Settings()
    assert Settings.from_env({"PATH": "/bin", "FARTHING_UNKNOWN": "x"}) == Settings()


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
        ("FARTHING_MAX_LIMIT", str(2**64)),
        ("FARTHING_PRICE_PER_BYTE", str(2**64)),
        ("FARTHING_PRICE_KINDS", f'{{"1": {2**64}}}'),
        ("FARTHING_FREE_PUBKEYS", "npub1xyz"),
        ("FARTHING_BLOCKED_PUBKEYS", f"{PUBKEY.upper()}"),
        ("FARTHING_SECRET_KEY", "nsec1xyz"),
        ("FARTHING_SECRET_KEY", "A" * 64),
        ("FARTHING_SECRET_KEY", "0" * 64),  # not a key of the curve
        ("FARTHING_SECRET_KEY", "f" * 64),
    ],
)
def test_a_wrong_value_is_refused_by_name(variable: str, text: str) -> None:
    with pytest.raises(InvalidSetting, match=variable):
        Settings.from_env({variable: text})


def test_the_secret_is_not_shown() -> None:
    wrong = "not-a-key-but-secret"
    with pytest.raises(InvalidSetting) as refused:
        Settings(secret_key=wrong)

    assert wrong not in str(refused.value)
    assert KEY not in repr(Settings(secret_key=KEY))
    assert KEY not in str(Settings(secret_key=KEY))


def test_what_follows_from_the_key() -> None:
    settings = Settings(secret_key=KEY)

    assert settings.pubkey == PUBKEY
    assert settings.own_ilp_address == f"g.agent.{PUBKEY}"
    assert Settings(ilp_address="g.mine").own_ilp_address == "g.mine"


def test_writing_is_free_at_price_nought() -> None:
    assert Settings(price_per_byte=0).is_free
    assert not Settings(price_per_byte=1).is_free


def test_the_documentation_covers_every_setting() -> None:
    rows = documentation()

    assert [variable for variable, _, _ in rows] == [
        f"FARTHING_{setting.name.upper()}" for setting in fields(Settings)
    ]
    assert all(about for _, _, about in rows)
    assert ("FARTHING_PORT", "7777", "Port of the local server, HTTP and WebSocket") in rows
