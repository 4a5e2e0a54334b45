"""The relay that a command works with: its WebSocket URL and its HTTP URL."""

from argparse import ArgumentTypeError, Namespace
from urllib.parse import urlsplit

from farthing.ports.outbound import origin_of
from farthing.settings import Settings


def relay(text: str) -> str:
    """A relay's URL as typed."""
    if text and origin_of(http_url(text)) is None:  # argparse asks about an empty default too
        raise ArgumentTypeError(f"expected a ws:// or wss:// URL, got {text[:80]!r}")
    return text


def relay_url(arguments: Namespace, settings: Settings) -> str:
    return arguments.relay or settings.socket_url


def web_url(arguments: Namespace, settings: Settings) -> str:
    """The relay's HTTP URL. Our own relay may have different addresses for HTTP and WebSockets."""
    return http_url(arguments.relay) if arguments.relay else settings.http_url


def http_url(relay: str) -> str:
    return relay.replace("ws", "http", 1).rstrip("/") if relay.startswith("ws") else relay


def is_own(url: str, settings: Settings) -> bool:
    """Whether a URL is on the host and port of our own connector."""
    return origin_of(url) is not None and origin_of(url) == origin_of(settings.ilp_url)


def host_of(url: str) -> str:
    return urlsplit(url).netloc
