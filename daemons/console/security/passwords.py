"""Passwords: argon2id, two at a time, in threads; the same work for unknown names.

One hash takes 64 MB and about 100 ms of a core: without a bound, logins could block the daemon.
"""

import asyncio
from functools import cache

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from mq.client.machine import random_ids

AT_ONCE = 2
LEAST = 12  # characters (ASVS 2.1.1)
MOST = 256
_HASHER = PasswordHasher()


def hashed(password: str) -> str:
    """Return the stored hash of a password."""
    return _HASHER.hash(password)


@cache
def _dummy_hash() -> str:
    """Return a hash that no password has, for unknown users."""
    return _HASHER.hash(random_ids.random_bytes(32).hex())


def _fits(kept: str, password: str) -> bool:
    try:
        return _HASHER.verify(kept, password)
    except (VerificationError, InvalidHashError):
        return False


class Passwords:
    """Compares passwords; ``hashes`` counts how often."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(AT_ONCE)
        self.hashes = 0

    async def fits(self, kept: str | None, password: str) -> bool:
        """Return whether the password matches; None for ``kept`` never does, and takes as long."""
        if len(password) > MOST:
            password = ""
        async with self._turns:
            self.hashes += 1
            if kept is None:
                await asyncio.to_thread(lambda: _fits(_dummy_hash(), password))
                return False
            return await asyncio.to_thread(_fits, kept, password)
