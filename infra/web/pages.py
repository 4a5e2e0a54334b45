"""The static files of the pages, and the facts that are filled into the HTML.

One machine serves them itself. In the cloud they lie in a bucket behind the edge, made at the
deployment, so that no function is called for them. Nothing of a visitor's is ever filled in.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from html import escape
from pathlib import Path

from farthing import __version__
from farthing.ilp.money import readable
from farthing.nostr.nip19 import Npub, encode
from farthing.settings import Settings

FOLDER = Path(__file__).parent
HTML = "text/html; charset=utf-8"
_SCRIPT = "text/javascript; charset=utf-8"
_ASSET_SECONDS = 300
_NO_KEY = "a" * 64
# A typical short note, as TOON.
_NOTE_BYTES = 350


@dataclass(frozen=True)
class StaticFile:
    """A file at a path. A template has facts filled in."""

    path: str
    file: str
    media_type: str
    is_template: bool = False

    @property
    def key(self) -> str:
        """Its name in a bucket: templates by their file, others by their path."""
        return self.file if self.is_template else self.path.removeprefix("/")

    def read(self) -> str:
        return _text(self.file)


@cache
def _text(file: str) -> str:
    return (FOLDER / file).read_text()


# `/` serves the page only to whoever asks for HTML; programs get NIP-11 there.
FILES = (
    StaticFile("/", "index.html", HTML, is_template=True),
    StaticFile("/operator", "operator.html", HTML, is_template=True),
    StaticFile("/assets/page.css", "page.css", "text/css; charset=utf-8"),
    StaticFile("/assets/page.js", "page.js", _SCRIPT),
    StaticFile("/assets/operator.js", "operator.js", _SCRIPT),
    StaticFile("/assets/nostr.js", "nostr.js", _SCRIPT),
    StaticFile("/assets/pay.js", "pay.js", _SCRIPT),
    StaticFile("/assets/qr.js", "qr.js", _SCRIPT),
)
BY_PATH: Mapping[str, StaticFile] = {each.path: each for each in FILES}


def content_security_policy(sockets: str) -> str:
    """Scripts and styles come from here alone, and nothing inline runs. Images of others are loaded
    when a visitor clicks on them. `sockets` is where the page may connect to."""
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
    }


def cache_header(file: StaticFile) -> str:
    return "no-cache" if file.is_template else f"public, max-age={_ASSET_SECONDS}"


def facts(settings: Settings, name: str = "", description: str = "") -> dict[str, str]:
    """What the templates tell. A deployment passes references for what it does not know yet."""
    return {
        "name": name or settings.name,
        "description": description or settings.description,
        "relay_url": settings.http_url.replace("http", "ws", 1),
        "http_url": settings.http_url,
        "pubkey": settings.pubkey,
        "npub": encode(Npub(settings.pubkey)),
        "ilp_address": settings.own_ilp_address,
        "speaks": "Nostr (NIP-01 and friends), ILPv4 over HTTP, SPSP and STREAM, the changes feed,"
        " negentropy",
        "price": price_in_words(settings),
        "version": __version__,
    }


def facts_of_deployment(
    settings: Settings, *, public_key: str, relay_url: str, web_url: str
) -> dict[str, str]:
    """The same where only AWS knows the key and the URLs yet: they are references, which nothing
    can be computed from. The page's script writes the key as npub."""
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
    note = readable(tariff.price(1, _NOTE_BYTES), tariff.asset_code, tariff.asset_scale)
    byte = readable(tariff.per_byte, tariff.asset_code, tariff.asset_scale)
    flat = [
        f"kind {kind}: {readable(price, tariff.asset_code, tariff.asset_scale)}"
        for kind, price in sorted(tariff.kinds.items())
    ]
    by_kind = f" Flat prices: {', '.join(flat)}." if flat else ""
    return f"A short note costs about {note}. A byte costs {byte}.{by_kind} Reading is free."


def fill(template: str, values: Mapping[str, str]) -> str:
    """The template with every `{{name}}` replaced, escaped for text and attributes."""
    for name, value in values.items():
        template = template.replace("{{" + name + "}}", escape(value))
    return template
