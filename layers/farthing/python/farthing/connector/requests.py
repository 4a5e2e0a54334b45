"""ILP over HTTP (RFC 0035), our side: who sends, is it a packet, has it been answered before.

Both modes are served: the reply in the response, as deployed connectors do it, and the reply by a
request of our own to the peer's registered endpoint, as the RFC's current text has it.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

from farthing.connector import steps as connector
from farthing.connector.known_peers import known_peers
from farthing.connector.packet_rate import packet_rate
from farthing.context import Agent
from farthing.ilp.packet import Code, Reject, encode
from farthing.ilp.tokens import InvalidToken, jwt_subject, looks_like_jwt, unseal, verify_jwt
from farthing.ports.http import HttpError, bearer_token
from farthing.ports.meter import Metric
from farthing.ports.outbound import NotRegistered, check_registered
from farthing.store.ledger import Peer
from farthing.store.table import StoreError

log = logging.getLogger("farthing")

OCTETS = "application/octet-stream"
# Type, lengths, amount, expiry, condition, and the longest address and data there are.
MAX_PACKET_BYTES = 34 * 1024
_MAX_REQUEST_ID = 256
_CALLBACK_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes = b""


def receive_packet(agent: Agent, headers: Mapping[str, str], body: bytes) -> Answer:
    """Answer `POST /ilp`. Header names are lower case."""
    if headers.get("content-type", "").partition(";")[0].strip().lower() != OCTETS:
        raise HttpError(400, f"the packet goes as {OCTETS}")
    if len(body) > MAX_PACKET_BYTES:
        raise HttpError(413, f"a packet has at most {MAX_PACKET_BYTES} bytes")
    peer = authenticate(agent, headers.get("authorization", ""))
    request_id, callback = headers.get("request-id", ""), headers.get("callback-url", "")
    if len(request_id) > _MAX_REQUEST_ID or not (request_id.isascii() and request_id.isprintable()):
        raise HttpError(400, f"Request-Id is not at most {_MAX_REQUEST_ID} printable characters")
    if not is_asynchronous(headers):
        return Answer(200, answer_once(agent, peer, request_id, body))
    if not request_id or not callback:
        raise HttpError(400, "an asynchronous request names a Request-Id and a Callback-Url")
    try:
        check_registered(callback, peer.endpoint)
    except NotRegistered as error:
        raise HttpError(400, f"Callback-Url: {error}") from None
    reply = answer_once(agent, peer, request_id, body)
    named = {"Content-Type": OCTETS, "Request-Id": request_id}
    agent.outbound.call_back(callback, named, reply, _CALLBACK_SECONDS)
    return Answer(202)


def is_asynchronous(headers: Mapping[str, str]) -> bool:
    preferred = "respond-async" in headers.get("prefer", "").lower()
    return preferred or ("request-id" in headers and "callback-url" in headers)


def authenticate(agent: Agent, authorization: str) -> Peer:
    token = bearer_token(authorization)
    if not token:
        raise HttpError(401, "a bearer token is needed")
    peer = _by_jwt(agent, token) if looks_like_jwt(token) else known_peers(agent).by_token(token)
    if peer is None or not peer.active:
        raise HttpError(401, "no peer has this token")
    return peer


def _by_jwt(agent: Agent, token: str) -> Peer | None:
    try:
        peer = known_peers(agent).by_id(jwt_subject(token))
        if peer is None or not peer.jwt_secret:
            return None
        owner = bytes.fromhex(agent.settings.secret_key)
        verify_jwt(token, unseal(owner, peer.id, peer.jwt_secret))
    except InvalidToken:
        return None
    return peer


def answer_once(agent: Agent, peer: Peer, request_id: str, body: bytes) -> bytes:
    """The reply; for a Request-Id that was answered before, the reply that it had then."""
    most = agent.settings.packets_per_minute
    if (
        packet_rate(agent).count(peer.id, agent.now) > most
    ):  # keeps nothing: it may be sent again later
        agent.meter.count(Metric.PACKETS_REJECTED, code=Code.T05_RATE_LIMITED)
        return _reject(agent, Code.T05_RATE_LIMITED, f"at most {most} packets a minute")
    if not request_id:
        return connector.handle(agent, peer, body)
    packet = sha256(body).hexdigest()
    try:
        claimed = agent.ledger.claim_request(peer.id, request_id, packet, agent.now)
    except StoreError:
        log.exception("a Request-Id of peer %s could not be claimed", peer.id)
        return _reject(agent, Code.T00_INTERNAL_ERROR, "internal error")
    if claimed is not None and "reply" in claimed:
        reply: bytes = claimed["reply"]
        return reply
    if claimed is not None and claimed["packet"] != packet:
        return _reject(agent, Code.F00_BAD_REQUEST, "this Request-Id was used for another packet")
    reply = connector.handle(agent, peer, body)
    try:
        agent.ledger.answer_request(peer.id, request_id, reply)
    except StoreError:  # what is done is done; asked again, the connector knows its own packet
        log.exception("a reply to peer %s could not be kept", peer.id)
    return reply


def _reject(agent: Agent, code: Code, message: str) -> bytes:
    return encode(Reject(code, agent.settings.own_ilp_address, message))
