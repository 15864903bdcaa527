"""Visit tokens: what clients show to brokers, to prove that a master knows them.

A token is a time in milliseconds. It is renewed before it is over; brokers are told the last one
and the one before, clients the one before: brokers know it for certain (SimpleVisitTokenManager).
"""

from mq.client.machine import clock


class VisitTokens:
    """``valid_ms`` is how long one is good."""

    def __init__(self, valid_ms: int) -> None:
        self.period = valid_ms * 4 / 5 / 1000  # seconds between two renewals
        self._fresh = clock.milliseconds()
        self._valid = self._fresh

    @property
    def for_clients(self) -> int:
        return self._valid

    @property
    def for_brokers(self) -> str:
        return f"{self._valid},{self._fresh}"

    @property
    def fresh(self) -> int:
        return self._fresh

    def renew(self) -> None:
        self._valid, self._fresh = self._fresh, max(clock.milliseconds(), self._fresh + 1)
