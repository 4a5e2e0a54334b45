"""Bearer tokens of ILP over HTTP (RFC 0035): SIMPLE, and JWT_HS_256.

SIMPLE tokens are kept as hashes only. A JWT's secret has to be known to check a signature, so it is
kept sealed under a key that comes from the owner's own.
"""

import hmac
import secrets
from base64 import urlsafe_b64encode

TOKEN_BYTES = 32
_SEAL_LABEL = b"farthing/peer-secrets/v1"
_NONCE_BYTES = 12


class InvalidToken(ValueError):
    """A token that proves nothing."""


def new_token() -> str:
    return urlsafe_b64encode(secrets.token_bytes(TOKEN_BYTES)).decode().rstrip("=")


def is_strong(token: str) -> bool:
    """Whether a token that someone chose has room for 32 random bytes, in whatever alphabet."""
    return len(token) >= 43 and len(set(token)) >= 10 and not looks_like_jwt(token)


def looks_like_jwt(token: str) -> bool:
    return token.count(".") == 2


def jwt_subject(token: str) -> str:
    """Whose token it claims to be. Proves nothing yet."""
    import jwt

    try:
        subject = jwt.decode(token, options={"verify_signature": False}).get("sub")
    except jwt.InvalidTokenError:
        raise InvalidToken("not a JWT") from None
    if not isinstance(subject, str) or not subject:
        raise InvalidToken("a JWT without a subject")
    return subject


def verify_jwt(token: str, secret: bytes) -> None:
    """Signed with this secret by HS256, and not expired. A JWT that never expires is refused."""
    import jwt

    try:
        jwt.decode(token, secret, algorithms=["HS256"], options={"require": ["exp", "sub"]})
    except jwt.InvalidTokenError:
        raise InvalidToken("the JWT is expired or not signed by the peer") from None


def seal(owner_secret: bytes, peer_id: str, secret: bytes) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    nonce = secrets.token_bytes(_NONCE_BYTES)
    cipher = ChaCha20Poly1305(hmac.digest(owner_secret, _SEAL_LABEL, "sha256"))
    return nonce + cipher.encrypt(nonce, secret, peer_id.encode())


def unseal(owner_secret: bytes, peer_id: str, sealed: bytes) -> bytes:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    nonce, text = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
    cipher = ChaCha20Poly1305(hmac.digest(owner_secret, _SEAL_LABEL, "sha256"))
    try:
        return cipher.decrypt(nonce, text, peer_id.encode())
    except InvalidTag:
        raise InvalidToken("sealed under another key") from None
