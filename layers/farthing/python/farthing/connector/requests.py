"""ILP over HTTP (RFC 0035), the server side: authenticate the sender, read the request, answer the
packet.

Both modes are served: the reply in the response, as deployed connectors do it, and the reply by a
request of our own to the peer's registered endpoint, as the RFC's current text has it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from farthing.connector import steps as connector
from farthing.connector.exchange import OCTETS as OCTETS
from farthing.connector.known_peers import known_peers
from farthing.context import Agent
from farthing.ilp.tokens import InvalidToken, jwt_subject, looks_like_jwt, unseal, verify_jwt
from farthing.ports.http import HttpError, bearer_token
from farthing.ports.outbound import NotRegistered, check_registered
from farthing.store.ledger import Peer

# `ilp-plugin-http` sends the second media type.
_MEDIA_TYPES = frozenset({OCTETS, "application/ilp+octet-stream"})
# Type, lengths, amount, expiry, condition, the longest address and the longest data.
MAX_PACKET_BYTES = 34 * 1024
_MAX_REQUEST_ID = 256
_CALLBACK_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes = b""
    media_type: str = OCTETS


def receive_packet(agent: Agent, headers: Mapping[str, str], body: bytes) -> Answer:
    """Answer `POST /ilp` in the media type of the request. Header names are lower case."""
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in _MEDIA_TYPES:
        raise HttpError(400, f"expected the packet as {OCTETS}")
    if len(body) > MAX_PACKET_BYTES:
        raise HttpError(413, f"expected a packet of at most {MAX_PACKET_BYTES} bytes")
    peer = authenticate(agent, headers.get("authorization", ""))
    request_id, callback = headers.get("request-id", ""), headers.get("callback-url", "")
    if len(request_id) > _MAX_REQUEST_ID or not (request_id.isascii() and request_id.isprintable()):
        raise HttpError(400, f"Request-Id: expected at most {_MAX_REQUEST_ID} printable characters")
    if not is_asynchronous(headers):
        return Answer(200, connector.handle(agent, peer, body, request_id), media_type)
    if not request_id or not callback:
        raise HttpError(
            400, "expected a Request-Id and a Callback-Url with an asynchronous request"
        )
    try:
        check_registered(callback, peer.endpoint)
    except NotRegistered as error:
        raise HttpError(400, f"Callback-Url: {error}") from None
    reply = connector.handle(agent, peer, body, request_id)
    named = {"Content-Type": media_type, "Request-Id": request_id}
    agent.outbound.call_back(callback, named, reply, _CALLBACK_SECONDS)
    return Answer(202)


def is_asynchronous(headers: Mapping[str, str]) -> bool:
    preferred = "respond-async" in headers.get("prefer", "").lower()
    return preferred or ("request-id" in headers and "callback-url" in headers)


def authenticate(agent: Agent, authorization: str) -> Peer:
    token = bearer_token(authorization)
    if not token:
        raise HttpError(401, "expected a bearer token")
    peer = _by_jwt(agent, token) if looks_like_jwt(token) else known_peers(agent).by_token(token)
    if peer is None or not peer.active:
        raise HttpError(401, "expected the token of a peer, got an unknown token")
    return peer


def _by_jwt(agent: Agent, token: str) -> Peer | None:
    try:
        peer = known_peers(agent).by_id(jwt_subject(token))
        if peer is None or not peer.jwt_secret:
            return None
        owner = agent.settings.secret
        verify_jwt(token, unseal(owner, peer.id, peer.jwt_secret))
    except InvalidToken:
        return None
    return peer
