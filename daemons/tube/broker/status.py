"""Whether a broker serves sends and gets: by the master's settings, and by disk errors."""

import logging
from collections import deque

from mq.client.machine import clock

log = logging.getLogger(__name__)


class ServiceStatus:
    """The status of one direction. The master's settings or too many errors stop it.

    The master gets a `report`; when it has stopped the direction and opens it again, the errors are
    reset (ServiceStatusHolder).
    """

    def __init__(self, name: str, allowed: int, within_ms: int) -> None:
        self._name = name
        self._allowed = allowed
        self._within = within_ms / 1000
        self._errors: deque[float] = deque(maxlen=allowed + 1)
        self.is_stopped_by_master = False
        self.is_paused = False
        self.errors = 0

    @property
    def is_stopped(self) -> bool:
        return self.is_stopped_by_master or self.is_paused

    @property
    def report(self) -> int:
        """Return 0: served; 1: stopped by the master; -1: stopped by errors."""
        return 1 if self.is_stopped_by_master else -1 if self.is_paused else 0

    def failed(self) -> None:
        """Count a failed read or write."""
        self.errors += 1
        now = clock.monotonic()
        self._errors.append(now)
        if not self.is_paused and len(self._errors) > self._allowed:
            if now - self._errors[0] <= self._within:
                self.is_paused = True
                log.critical("%s stops: more than %d errors of the disk", self._name, self._allowed)

    def set_by_master(self, is_stopped: bool) -> None:
        if self.is_stopped_by_master and not is_stopped:
            self.is_paused = False
            self._errors.clear()
        if self.is_stopped_by_master != is_stopped:
            log.warning("%s %s by the master", self._name, "stopped" if is_stopped else "opened")
        self.is_stopped_by_master = is_stopped
