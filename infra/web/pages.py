"""The static files of the pages, and the facts that are filled into the HTML.

On one machine the server sends the files. In the cloud they are in a bucket behind CloudFront,
filled in at the deployment, so that no function is called for them. Nothing that a visitor sends is
ever filled in.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from html import escape
from pathlib import Path

from farthing import __version__
from farthing.ilp.money import SIGNS, readable
from farthing.ilp.tariff import Tariff
from farthing.nostr.nip19 import Npub, encode
from farthing.relay.information import supported_nips
from farthing.settings import Settings

FOLDER = Path(__file__).parent
HTML = "text/html; charset=utf-8"
_SCRIPT = "text/javascript; charset=utf-8"
# How long browsers keep a file.
ALWAYS_ASK = "no-cache"
SHORT = "public, max-age=300"
FOR_EVER = "public, max-age=31536000, immutable"
_NO_KEY = "a" * 64
# A typical short note, as TOON.
_NOTE_BYTES = 350


@dataclass(frozen=True)
class StaticFile:
    """A file that is served at a path. Facts are filled into a template."""

    path: str
    file: str
    media_type: str
    cache: str = SHORT
    is_template: bool = False

    @property
    def key(self) -> str:
        """The file's key in the bucket: the file name of a template, the path of other files."""
        return self.file if self.is_template else self.path.removeprefix("/")

    def read(self) -> str:
        return _text(self.file)


@cache
def _text(file: str) -> str:
    return (FOLDER / file).read_text()


_ASSETS = {
    "page.css": "text/css; charset=utf-8",
    "page.js": _SCRIPT,
    "purse.js": _SCRIPT,
    "routes.js": _SCRIPT,
    "operator.js": _SCRIPT,
    "nostr.js": _SCRIPT,
    "names.js": _SCRIPT,
    "pay.js": _SCRIPT,
    "qr.js": _SCRIPT,
}


def version_of(texts: Iterable[str]) -> str:
    """A name that changes with any of the texts."""
    return sha256("\0".join(texts).encode()).hexdigest()[:12]


# The folder of the files, so that no browser mixes old and new ones.
VERSION = version_of(map(_text, _ASSETS))

# `/` serves the page only for requests that accept HTML; programs get NIP-11 there.
FILES = (
    StaticFile("/", "index.html", HTML, cache=ALWAYS_ASK, is_template=True),
    StaticFile("/operator", "operator.html", HTML, cache=ALWAYS_ASK, is_template=True),
    *(
        StaticFile(f"/assets/{VERSION}/{name}", name, media_type, cache=FOR_EVER)
        for name, media_type in _ASSETS.items()
    ),
    # Under names that last: for the pages about purses, which functions make, and for other people.
    StaticFile("/assets/page.css", "page.css", _ASSETS["page.css"]),
    StaticFile("/assets/pay.js", "pay.js", _SCRIPT),
)
BY_PATH: Mapping[str, StaticFile] = {each.path: each for each in FILES}


def content_security_policy(sockets: str) -> str:
    """Scripts and styles come from this relay only, and nothing inline runs. Images from elsewhere
    are loaded when a visitor clicks on them. The page may connect to `sockets`."""
    policy = {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "img-src": "'self' https: data:",
        "connect-src": f"'self' {sockets}",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in policy.items())


def security_headers(relay_url: str) -> dict[str, str]:
    return {
        "Content-Security-Policy": content_security_policy(relay_url),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        # Pages of others may load pay.js from here.
        "Access-Control-Allow-Origin": "*",
    }


def facts(settings: Settings, *, searches: bool = False) -> dict[str, str]:
    """The facts for the templates, by their names there."""
    return {
        "name": settings.name,
        "description": settings.description,
        "relay_url": settings.http_url.replace("http", "ws", 1),
        "http_url": settings.http_url,
        "pubkey": settings.pubkey,
        "npub": encode(Npub(settings.pubkey)),
        "ilp_address": settings.own_ilp_address,
        "speaks": _speaks(settings),
        "nips": ", ".join(map(str, supported_nips(settings, searches=searches))),
        "price": price_in_words(settings),
        "purse": (
            "Writing needs no money here. A purse pays for subscriptions."
            if settings.is_free
            else "Pay in advance, then write with any Nostr client."
        ),
        "client": (
            "Add this relay, and write:"
            if settings.is_free
            else "Add this relay. When your client logs in (NIP-42), what you write is paid from"
            " your purse:"
        ),
        "version": __version__,
        "assets": VERSION,
    }


def _speaks(settings: Settings) -> str:
    nostr = "Nostr with negentropy, the changes feed and paid subscriptions (BTP-NIPs)"
    interledger = "Interledger: ILPv4 over HTTP, SPSP, STREAM"
    return "; ".join([nostr, interledger, *(["Aether"] if settings.aether else [])])


def facts_of_deployment(
    settings: Settings, *, public_key: str, relay_url: str, web_url: str
) -> dict[str, str]:
    """The facts while only AWS knows the key and the URLs: they are references, and nothing can be
    computed from them. The page's script shows the key as npub."""
    known = facts(replace(settings, public_key=_NO_KEY, secret_key=""))
    address = settings.ilp_address or f"g.agent.{public_key}"
    return known | {
        "relay_url": relay_url,
        "http_url": web_url,
        "pubkey": public_key,
        "npub": public_key,
        "ilp_address": address,
    }


def price_in_words(settings: Settings) -> str:
    tariff = settings.tariff
    if tariff.is_free:
        return "Writing is free here."
    price = tariff.price(1, _NOTE_BYTES)
    note = readable(price, tariff.asset_code, tariff.asset_scale) + _how_many(tariff, price)
    byte = readable(tariff.per_byte, tariff.asset_code, tariff.asset_scale)
    by_size = f"A byte costs {byte}." if tariff.per_byte else "Other kinds are free."
    flat = [
        f"kind {kind}: {readable(price, tariff.asset_code, tariff.asset_scale)}"
        for kind, price in sorted(tariff.kinds.items())
    ]
    by_kind = f" Flat prices: {', '.join(flat)}." if flat else ""
    return f"A short note costs about {note}. {by_size}{by_kind}"


def _how_many(tariff: Tariff, price: int) -> str:
    """How many notes a dollar pays for, which says more than a price far below a cent."""
    one = 10**tariff.asset_scale
    if not price or price * 100 > one or tariff.asset_code not in SIGNS:
        return ""
    many = one // price
    step: int = 10 ** max(0, len(str(many)) - 2)
    whole = readable(one, tariff.asset_code, tariff.asset_scale)
    return f": {whole} pays for some {many // step * step:,}"


def fill(template: str, values: Mapping[str, str]) -> str:
    """The template with every `{{name}}` replaced, escaped for text and attributes."""
    for name, value in values.items():
        template = template.replace("{{" + name + "}}", escape(value))
    return template
