"""Settings of identity: the owner's keys, the public addresses, the relay's own description."""

from dataclasses import dataclass

from farthing.settings.declaring import setting
from farthing.settings.values import (
    check_derived_keys,
    check_json_object,
    check_public_key,
    check_secret_key,
    read_secret_key,
    url_of,
)


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Identity:
    """The owner's keys, the public addresses, and the relay's own description."""

    secret_key: str = setting(
        "",
        "Nostr key of the owner: 64 hex digits, or an nsec. The local server makes one on its"
        " first run and keeps it in the data folder.",
        check_secret_key,
        read=read_secret_key,
        secret=True,
    )
    public_key: str = setting(
        "",
        "Public key of the owner, 64 hex digits, for a process that must not hold the secret key."
        " If empty, it follows from the secret key.",
        check_public_key,
    )
    derived_keys: str = setting(
        "",
        "Keys derived from the owner's secret key, in hex and comma-separated, for a process that"
        " must not hold that key: the public keys of Aether and Noise, and three secret keys if the"
        " process encrypts sockets or quotes prices. If empty, they are derived here.",
        check_derived_keys,
        secret=True,
    )
    relay_url: str = setting(
        "",
        "Public WebSocket URL of the relay, such as `wss://relay.example.org`. AUTH accepts no"
        " other. If empty, the address that the local server listens on.",
        url_of("ws", "wss"),
    )
    web_url: str = setting(
        "",
        "Public HTTP URL. If empty, the WebSocket URL with `http` in place of `ws`.",
        url_of("http", "https"),
    )
    name: str = setting("Farthing", "Name of the relay in the relay information document (NIP-11)")
    description: str = setting(
        "A Nostr relay where a farthing buys one stored event.",
        "Description of the relay in the relay information document",
    )
    contact: str = setting(
        "", "URI in the relay information document by which people reach the operator"
    )
    icon: str = setting("", "URL of the relay's icon in the relay information document")
    list_changes_feed: bool = setting(
        True,
        'Whether `supported_nips` lists `"CF"`, as the changes feed demands. Some clients accept'
        " numbers only and then reject the whole document: `0` helps them. The field"
        " `changes_feed` is there in either case.",
    )
    profile: str = setting(
        "",
        "Content of the owner's profile (kind 0), as a JSON object; if empty, none is published",
        check_json_object,
    )
