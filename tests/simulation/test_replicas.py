"""Messages that a SYNC_MASTER acknowledges are on its slave, whatever happens to either."""

from typing import Any

import pytest

from tests.simulation.running import checks


@pytest.fixture(scope="module")
def told() -> Any:
    return checks("replicas")["replicas"]


def test_a_slave_has_what_its_master_acknowledged_when_the_masters_disk_is_gone(told: Any) -> None:
    for name, story in told.items():
        assert story["missing"] == [], (name, story)
        assert story["asked"] == story["acknowledged"], name


def test_much_was_acknowledged_amid_the_faults(told: Any) -> None:
    assert sum(story["acknowledged"] for story in told.values()) > 1000
    assert {kind for story in told.values() for kind in story["faults"]} >= {
        *("kill slave", "kill master", "cut", "slave's power", "master's power"),
    }
