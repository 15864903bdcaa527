"""Signatures of TubeMQ clients: HMAC-SHA1 of user, time, and a nonce.

    signature = urlencode(base64(HMAC-SHA1(key = password, message = user + timestamp + nonce)))

(SimpleClientAuthenticateHandler and related classes; the numbers are decimal text).
"""

import binascii
import hmac
from typing import NamedTuple
from urllib.parse import quote

from mq.protocol.tube.errors import MalformedText

MAX_NONCE = 2**31 - 2


class BrokerToken(NamedTuple):
    """The token that a client presents to a broker (AuthorizedInfo.authAuthorizedToken)."""

    user: str
    timestamp_ms: int
    nonce: int
    signature: str

    @classmethod
    def parse(cls, text: str) -> "BrokerToken":
        """Raises MalformedText for a malformed token."""
        parts = text.split()
        if len(parts) != 4 or not all(part.isascii() and part.isdigit() for part in parts[1:3]):
            raise MalformedText(text, "a token is a user, a time, a number and a signature")
        if max(map(len, parts[1:3])) > 19:
            raise MalformedText(text, "the time or the number is too long")
        return cls(parts[0], int(parts[1]), int(parts[2]), parts[3])

    def __str__(self) -> str:
        return f"{self.user} {self.timestamp_ms} {self.nonce} {self.signature}"


def sign(user: str, password: str, timestamp_ms: int, nonce: int) -> str:
    """Return the signature of a user at a time, in ms since 1970, with a nonce of 31 bits."""
    signed = f"{user}{timestamp_ms}{nonce}".encode()
    digest = hmac.digest(password.encode(), signed, "sha1")
    return quote(binascii.b2a_base64(digest, newline=False).decode(), safe="")


def verify(user: str, password: str, timestamp_ms: int, nonce: int, signature: str) -> bool:
    """Whether the signature is valid, in constant time."""
    expected = sign(user, password, timestamp_ms, nonce)
    return hmac.compare_digest(expected.encode(), signature.encode("utf-8", "surrogatepass"))


def broker_token(user: str, password: str, timestamp_ms: int, nonce: int) -> str:
    """Return the token that a user presents to brokers."""
    return str(BrokerToken(user, timestamp_ms, nonce, sign(user, password, timestamp_ms, nonce)))
