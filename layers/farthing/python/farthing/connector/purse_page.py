"""The pages about purses, for people: how to fill one. Plain HTML without a script; a page shows no
balance, since anybody may open it."""

from html import escape

from farthing.connector.purse_accounts import pointer_of
from farthing.ilp.purse import purse_address
from farthing.nostr.nip19 import Npub, encode
from farthing.relay.purses import readable_price
from farthing.settings import Settings

# The page loads only the style that all pages of the relay have. Other sites may neither frame the
# page nor receive its form.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; img-src data:; style-src 'self'; form-action 'self';"
        " frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/assets/page.css">
</head>
<body>
<header>
<h1>{title}</h1>
<nav aria-label="Pages"><a href="/">The relay&rsquo;s page</a></nav>
</header>
<main>
{body}
</main>
</body>
</html>
"""


def purses_page(settings: Settings, trouble: str = "") -> str:
    """The page for somebody whose key we do not know yet, or who has typed something else."""
    told = f'\n<p class="error" role="alert">{escape(trouble.capitalize())}.</p>' if trouble else ""
    return _page(
        f"Purses at {settings.name}",
        f"""<section>
<p>{_price(settings)} {_use(settings)}</p>
<form class="filter" action="{escape(settings.purses_url)}" method="get">
<label class="wide">Your public key (npub)
<input name="key" required maxlength="200" autocomplete="off" spellcheck="false"></label>
<button type="submit">How to fill the purse</button>
</form>{told}
</section>""",
    )


def purse_page(settings: Settings, key: str) -> str:
    """How to fill the purse of one key."""
    npub = encode(Npub(key))
    address = purse_address(settings.own_ilp_address, bytes.fromhex(key))
    site = settings.http_url
    quote = f'curl {site}/v1/quotes -d \'{{"purse": "{npub}"}}\''
    ways = {
        "From an Interledger wallet": f"<p>Pay to:</p>{_line(pointer_of(settings, key))}",
        "From an account at a connector": (
            f"{_line(f'farthing purse fill {npub} AMOUNT')}"
            f"<p>Or send ILP packets to:</p>{_line(address)}<p>at:</p>{_line(settings.ilp_url)}"
            f"<p>A quote says what to send:</p>{_line(quote)}"
        ),
        "From the operator": f"<p>{_contact(settings)}</p>",
    }
    uses = (
        "The purse pays for subscriptions."
        if settings.is_free
        else "What this key writes while its client is logged in (NIP-42) is paid from the purse."
    )
    listed = "\n".join(f"<section><h2>{name}</h2>{text}</section>" for name, text in ways.items())
    return _page(
        "Fill this purse",
        f"""<section>
<p>This is the purse of <code>{npub}</code> at {escape(settings.name)}. {_price(settings)}
{uses}</p>
<p>Amounts are in units of {escape(settings.tariff.unit)}. Only the key itself and the operator
can see what the purse holds: log in on the relay&rsquo;s page, or sign (NIP-98) a request for:</p>
{_line(f"{site}/v1/purses/{npub}")}
</section>
{listed}""",
    )


def _line(text: str) -> str:
    """A text to copy."""
    return f'<p class="copy"><code>{escape(text)}</code></p>'


def _price(settings: Settings) -> str:
    per_byte = settings.tariff.per_byte
    if settings.is_free:
        return "Writing here is free."
    if not per_byte:
        return "Writing some kinds of events costs money here."
    price = readable_price(settings, 1000 * per_byte)
    return f"Writing costs {escape(price)} per thousand bytes here."


def _use(settings: Settings) -> str:
    if settings.is_free:
        return "A purse pays for subscriptions."
    return (
        "Pay in advance into the purse of your Nostr key, and write with any client: it logs in,"
        " and each event is paid from your purse."
    )


def _contact(settings: Settings) -> str:
    if not settings.contact:
        return "The operator may grant money to your purse."
    return f"Ask for other ways to pay: <code>{escape(settings.contact)}</code>"


def _page(title: str, body: str) -> str:
    return _PAGE.format(title=escape(title), body=body)
