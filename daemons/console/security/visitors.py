"""Visitors: the session or token of a request, and the tokens of its forms.

A form's token is derived from a key of this process and the visitor's cookie, so other sites cannot
know it. It differs each time, so that compressed pages do not reveal it (BREACH).
"""

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass, field

from mq.client.machine import random_ids
from mq.daemons.console.security.roles import User

_BYTES = 32


def new_id() -> str:
    """Return 256 random bits."""
    return base64.urlsafe_b64encode(random_ids.random_bytes(_BYTES)).rstrip(b"=").decode()


@dataclass(frozen=True, slots=True)
class Visitor:
    """The sender of a request. ``user`` is None without a login. ``id`` is that of the cookie,
    and ``fresh`` says that the cookie must be set."""

    id: str
    user: User | None = None
    fresh: bool = False
    local: bool = False  # a console without accounts: it has no logout
    by_token: bool = field(default=False)
    mark: str = ""  # of the token; a later token may have the same name


class FormTokens:
    """Creates and checks the hidden fields of forms."""

    def __init__(self) -> None:
        self._key = random_ids.random_bytes(_BYTES)

    def make(self, visitor: str) -> str:
        """Return a token for a form on a page of this visitor."""
        mask = random_ids.random_bytes(_BYTES)
        masked = bytes(a ^ b for a, b in zip(mask, self._of(visitor), strict=True))
        return base64.urlsafe_b64encode(mask + masked).decode()

    def fits(self, visitor: str, token: str) -> bool:
        """Return whether a form was on a page of this visitor."""
        try:
            raw = base64.urlsafe_b64decode(token.encode("ascii"))
        except (binascii.Error, ValueError):
            return False
        if len(raw) != 2 * _BYTES:
            return False
        found = bytes(a ^ b for a, b in zip(raw[:_BYTES], raw[_BYTES:], strict=True))
        return hmac.compare_digest(found, self._of(visitor))

    def _of(self, visitor: str) -> bytes:
        return hmac.new(self._key, visitor.encode(), hashlib.sha256).digest()
