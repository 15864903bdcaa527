"""Longer timeouts than sends may take, for busy machines."""

import pytest

from mq.daemons.broker.failover.acting import escape
from tests.daemons.peer import PATIENCE


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message without a timely reply from another broker is sent again, and would arrive
    twice."""
    monkeypatch.setattr(escape, "SEND_SECONDS", PATIENCE)
