"""The route watch checks every guarantee about a broker that is gone."""

from typing import Any

import pytest

from tests.simulation.running import checks


@pytest.fixture(scope="module")
def told() -> Any:
    return checks("gone_brokers", "gone_brokers_with_defects")


def test_a_broker_without_power_leaves_the_routes_when_its_beacons_stay_out(told: Any) -> None:
    for story in ("well", "heard again", "late"):
        assert told["gone_brokers"][story]["problems"] == []
        assert not told["gone_brokers"][story]["live"], story
    assert told["gone_brokers"]["late"]["late"] > 0.6  # later than the route watch would wait


def test_of_a_broker_that_registered_without_a_beacon_none_is_missed(told: Any) -> None:
    assert told["gone_brokers"]["none comes"]["live"]  # as in Java: until it registers no more
    assert told["gone_brokers"]["none comes"]["problems"] == []


def test_it_is_noticed_when_a_name_server_keeps_a_broker_whose_beacons_came(told: Any) -> None:
    for defect, stories in told["gone_brokers_with_defects"].items():
        for story, outcome in stories.items():
            assert outcome["live"], (defect, story)
            assert "in its routes still" in outcome["problems"][0], (defect, story)
