"""The list of masters."""

import pytest

from mq.client.errors import ClientError
from mq.client.tube.masters import Masters


def test_masters_follow_each_other_in_the_order_given() -> None:
    masters = Masters("b:8715,a:8716, b:8717")
    assert [str(masters.current), str(masters.advance()), str(masters.advance())] == [
        *("b:8715", "a:8716", "b:8717"),
    ]
    assert str(masters.advance()) == "b:8715"
    assert len(masters) == 3
    assert masters.hosts == ["b", "a", "b"]
    assert len(Masters(["a:1", "a:1", "c:2"])) == 2


def test_without_a_port_it_is_the_usual_one() -> None:
    assert str(Masters("tube").current) == "tube:8715"


@pytest.mark.parametrize("wrong", ["", ",", ":8715", "a:70000", "a:b", "a:0"])
def test_what_is_no_list_is_refused(wrong: str) -> None:
    with pytest.raises(ClientError):
        Masters(wrong)
