"""Visit tokens: a client sends one to a broker to prove that the master has accepted it.

A token is 63 random bits. Producers and consumers have separate tokens, because a master may
authenticate one kind and not the other. Tokens are renewed before they expire. A client gets the
token of the previous period, which every broker has known for a whole period. A broker gets the
previous, the current and the next one (SimpleVisitTokenManager sends the last two).
"""

from mq.client.machine import random_ids

_KEPT = 3  # valid tokens of a kind at the same time


class VisitTokens:
    """The tokens of a master. ``valid_ms`` is the validity of one token."""

    def __init__(self, valid_ms: int) -> None:
        self.period = valid_ms * 4 / 5 / 1000  # seconds between two renewals
        self._by_kind = {produces: [_random()] * _KEPT for produces in (True, False)}

    def for_clients(self, *, produces: bool) -> int:
        """Return the token of a producer or of a consumer."""
        return self._by_kind[produces][-2]

    def of(self, *, produces: bool) -> list[int]:
        """Return all valid tokens of a kind, the oldest first."""
        return list(self._by_kind[produces])

    @property
    def for_brokers(self) -> str:
        """Return the tokens of both kinds in the form for Java's broker.

        It keeps six and drops the oldest first, so the kinds alternate.
        """
        pairs = zip(self._by_kind[True], self._by_kind[False], strict=True)
        return ",".join(str(token) for pair in pairs for token in pair)

    def renew(self) -> None:
        """Begin a period: the oldest token of each kind expires."""
        for tokens in self._by_kind.values():
            tokens.append(_random())
            del tokens[0]


def _random() -> int:
    """Return 63 random bits except 0, which a request without a token has."""
    return int.from_bytes(random_ids.random_bytes(8)) >> 1 or 1
