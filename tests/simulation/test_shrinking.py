"""Defects that were planted are found, and shrink to a story that can be read."""

from typing import Any

import pytest

from tests.conftest import IS_LONG
from tests.simulation.running import checks

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def found() -> Any:
    long = ("acknowledged_before_it_is_synced",) if IS_LONG else ()
    return checks("name_servers_never_told_again", *long)


@pytest.mark.long
def test_messages_acknowledged_before_they_are_synced_are_found_by_a_power_cut(found: Any) -> None:
    defect = found["acknowledged_before_it_is_synced"]
    assert any("was acknowledged at" in problem for problem in defect["problems"])
    before, after = defect["faults"]
    assert 1 <= after <= before  # how far it comes in so short a time is up to the machine
    assert any("power cut" in kind or kind == "failing syncs" for kind in defect["kinds"])


def test_a_broker_that_does_not_come_back_to_a_name_server_is_found(found: Any) -> None:
    defect = found["name_servers_never_told_again"]
    assert any("is not in its routes" in problem for problem in defect["problems"])
    assert defect["faults"][1] <= defect["faults"][0]


def test_what_a_failure_needs_stays_and_nothing_else() -> None:
    needed = checks("what_is_needed_stays")["what_is_needed_stays"]
    assert needed == {"faults": [3, 7], "clients": ["b"], "seconds": 12.5}


def test_groups_whose_members_are_left_out_are_asked_for_nothing() -> None:
    told = checks("who_is_left_out_misses_nothing")["who_is_left_out_misses_nothing"]
    assert {seed: problems for seed, problems in told.items() if problems} == {}


def test_a_report_shows_who_did_what_and_the_command_that_shows_it_again(found: Any) -> None:
    for defect in found.values():
        report = defect["report"]
        assert "shrunk from" in report.splitlines()[0]
        assert "FAULT" in report
        assert "What did not hold:" in report
        again = report.splitlines()[-1]
        assert again.startswith("Again: python -m tests.simulation --seed ")
        assert defect["same again"]
