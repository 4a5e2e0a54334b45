"""The pages about purses, for people: how to fill one. Plain HTML without a script; a page shows no
balance, since anybody may open it."""

from html import escape

from farthing.connector.purse_accounts import pointer_of
from farthing.ilp.purse import purse_address
from farthing.nostr.nip19 import Npub, encode
from farthing.relay.purses import readable_price
from farthing.settings import Settings

# Nothing may be loaded, and nothing from elsewhere may frame the page or take its form.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none';"
        " base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 1rem/1.5 system-ui, sans-serif; max-width: 42rem; margin: 2rem auto }}
code {{ overflow-wrap: anywhere; background: #8882; padding: .1em .3em }}
dt {{ margin-top: 1em; font-weight: bold }}
dd {{ margin: 0 }}
input {{ font: inherit; width: 100%; max-width: 30rem }}
</style>
</head>
<body>
<h1>{title}</h1>
{body}
</body>
</html>
"""


def purses_page(settings: Settings) -> str:
    """The page for somebody whose key we do not know yet."""
    return _page(
        f"Purses at {settings.name}",
        f"""<p>{_price(settings)} Pay in advance into the purse of your Nostr key, and write with
any client: it logs in, and each event is paid from your purse.</p>
<form action="{escape(settings.purses_url)}" method="get">
<p><label for="key">Your public key (npub)</label><br>
<input id="key" name="key" required maxlength="200" autocomplete="off" spellcheck="false"></p>
<p><button type="submit">How to fill the purse</button></p>
</form>""",
    )


def purse_page(settings: Settings, key: str) -> str:
    """How to fill the purse of one key."""
    npub = escape(encode(Npub(key)))
    address = escape(purse_address(settings.own_ilp_address, bytes.fromhex(key)))
    site = escape(settings.http_url)
    ways = {
        "From an Interledger wallet": (
            f"Pay to the payment pointer <code>{escape(pointer_of(settings, key))}</code>"
        ),
        "From an account at a connector": (
            f"<code>farthing purse fill {npub} AMOUNT</code>, or send ILP packets to"
            f" <code>{address}</code> at <code>{escape(settings.ilp_url)}</code>."
            f" <code>POST {site}/v1/quotes</code> with"
            f" <code>{{&quot;purse&quot;: &quot;{npub}&quot;}}</code> answers what to send."
        ),
        "From the operator": _contact(settings),
    }
    listed = "\n".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in ways.items())
    return _page(
        "Fill this purse",
        f"""<p>This is the purse of <code>{npub}</code> at {escape(settings.name)}.
{_price(settings)} What this key writes while its client is logged in (NIP-42) is paid from the
purse.</p>
<dl>
{listed}
</dl>
<p>Amounts count in units of {escape(settings.tariff.unit)}. Only the key itself can see what its
purse holds: <code>GET {site}/v1/purses/{npub}</code>, signed as NIP-98 says.</p>""",
    )


def _price(settings: Settings) -> str:
    per_byte = settings.tariff.per_byte
    if settings.is_free:
        return "Writing here is free."
    if not per_byte:
        return "Writing some kinds of events costs money here."
    price = readable_price(settings, 1000 * per_byte)
    return f"Writing costs {escape(price)} per thousand bytes here."


def _contact(settings: Settings) -> str:
    if not settings.contact:
        return "The operator may grant money to your purse."
    return f"Ask for other ways to pay: <code>{escape(settings.contact)}</code>"


def _page(title: str, body: str) -> str:
    return _PAGE.format(title=escape(title), body=body)
