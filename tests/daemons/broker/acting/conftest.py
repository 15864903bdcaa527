"""What a busy machine takes longer for than what is sent may take."""

import pytest

from mq.daemons.broker.acting import escape
from tests.daemons.peer import PATIENCE


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What another broker takes without an answer in time is sent again: it would come twice."""
    monkeypatch.setattr(escape, "SEND_SECONDS", PATIENCE)
