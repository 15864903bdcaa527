"""Past defects are found when they are put back; the long suite searches for them."""

import pytest

from tests.simulation.defects.command import Defect, find, is_stale, read_all

_SECONDS = 600.0


def test_every_patch_fits_the_code() -> None:
    stale = [text for defect in read_all() if (text := is_stale(defect))]
    assert not stale, "\n".join(stale)


@pytest.mark.long
@pytest.mark.timeout(2 * _SECONDS)
@pytest.mark.parametrize("defect", read_all(), ids=lambda defect: defect.name)
def test_a_past_defect_is_found_within_ten_minutes(defect: Defect) -> None:
    outcome = find(defect, _SECONDS, processes=1)
    assert outcome.where, outcome.tried
