"""Signed requests (NIP-98): the key that has signed a request, and requests that only the owner may
make."""

from farthing.context import Agent
from farthing.handlers.calls import Event
from farthing.handlers.web import body_of, header, method_of, path_of, url_of
from farthing.nostr.http_auth import InvalidHttpAuth, authorized_key, parse_header
from farthing.ports.http import Forbidden, NotSigned


def signed_by(agent: Agent, authorization: str, *, url: str, method: str, body: bytes = b"") -> str:
    """The key that has signed this very request (NIP-98)."""
    try:
        return authorized_key(authorization, url=url, method=method, body=body, now=agent.now)
    except InvalidHttpAuth as error:
        raise NotSigned(str(error)) from None


def check_owner(agent: Agent, event: Event) -> None:
    """401 for a request without a valid signature, 403 for a request signed by another key."""
    asker = signed_by(
        agent,
        header(event, "authorization"),
        url=_signed_url(agent, event),
        method=method_of(event),
        body=body_of(event),
    )
    if asker != agent.settings.pubkey:
        raise Forbidden("only the owner of this relay may do this")


def _signed_url(agent: Agent, event: Event) -> str:
    """The request's URL in the form that was signed: the relay's own URL is also written without a
    slash at the end, and with the scheme of its sockets."""
    url = url_of(agent, event)
    if path_of(event) != "/":
        return url
    plain = url.rstrip("/")
    forms = {plain, url, *(form.replace("http", "ws", 1) for form in (plain, url))}
    try:
        signed = parse_header(header(event, "authorization")).first_value("u")
    except InvalidHttpAuth:
        return url
    return signed if signed is not None and signed in forms else url
