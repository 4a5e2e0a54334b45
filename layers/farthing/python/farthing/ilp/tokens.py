"""Bearer tokens of ILP over HTTP (RFC 0035): SIMPLE, and JWT_HS_256.

Only the hashes of SIMPLE tokens are stored. The signature of a JWT can be checked only with its
secret, so the secret is stored, encrypted under a key that is derived from the owner's key.
"""

import hmac
import secrets
from base64 import urlsafe_b64encode

TOKEN_BYTES = 32
_SEAL_LABEL = b"farthing/peer-secrets/v1"
_NONCE_BYTES = 12


class InvalidToken(ValueError):
    """The token is malformed, expired or not signed by the peer."""


def new_token() -> str:
    """A new token. Its first character is not a dash, so no command takes it for an option."""
    while True:
        token = urlsafe_b64encode(secrets.token_bytes(TOKEN_BYTES)).decode().rstrip("=")
        if not token.startswith("-"):
            return token


def is_strong(token: str) -> bool:
    """Whether a chosen token is long enough for 32 random bytes, in any alphabet."""
    return len(token) >= 43 and len(set(token)) >= 10 and not looks_like_jwt(token)


def looks_like_jwt(token: str) -> bool:
    # A header may hold octets outside ASCII, which the library for JWTs cannot read.
    return token.isascii() and token.count(".") == 2


def jwt_subject(token: str) -> str:
    """The subject that a JWT claims, before its signature is checked."""
    import jwt

    try:
        subject = jwt.decode(token, options={"verify_signature": False}).get("sub")
    except jwt.InvalidTokenError:
        raise InvalidToken("expected a JWT") from None
    if not isinstance(subject, str) or not subject:
        raise InvalidToken("expected a JWT with a subject")
    return subject


def verify_jwt(token: str, secret: bytes) -> None:
    """Check that the JWT is signed with this secret by HS256, and has not expired. A JWT that never
    expires is refused."""
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
        raise InvalidToken("expected text that is encrypted under our key") from None
