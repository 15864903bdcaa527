import pytest

from tests.daemons.peer import PATIENCE


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is busy with other tests needs longer to register a change at name servers."""
    monkeypatch.setattr("mq.daemons.broker.name_servers.registration.ANNOUNCE_TIMEOUT", PATIENCE)
