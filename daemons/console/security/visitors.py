"""Who asks: the session or token of a request, and the marks that its forms must bring back.

A form's token is made of a key of this process and the visitor's cookie, so a page of somebody else
cannot know it; it looks different each time, so that compressed pages tell nothing of it (BREACH).
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
    """256 bits that nobody can foresee."""
    return base64.urlsafe_b64encode(random_ids.random_bytes(_BYTES)).rstrip(b"=").decode()


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who asks. ``user`` is None for somebody who has not logged in. ``id`` is that of the cookie,
    and ``fresh`` says that the cookie has to be set."""

    id: str
    user: User | None = None
    fresh: bool = False
    local: bool = False  # a console without accounts: there is nothing to log out of
    by_token: bool = field(default=False)
    mark: str = ""  # of the token, which may be another one's of the same name later


class FormTokens:
    """Makes and checks the hidden fields of forms."""

    def __init__(self) -> None:
        self._key = random_ids.random_bytes(_BYTES)

    def make(self, visitor: str) -> str:
        """A token for a form on a page of this visitor."""
        mask = random_ids.random_bytes(_BYTES)
        masked = bytes(a ^ b for a, b in zip(mask, self._of(visitor), strict=True))
        return base64.urlsafe_b64encode(mask + masked).decode()

    def fits(self, visitor: str, token: str) -> bool:
        """Whether a form was on a page of this visitor."""
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
