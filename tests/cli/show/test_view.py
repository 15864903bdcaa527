from collections.abc import Sequence

import pytest

from mq.cli.runtime.errors import UsageError
from mq.cli.show.result import Result
from mq.cli.show.view import View, find, parse
from mq.client.operations.columns import flag, number, text, time
from tests.cli.support import Mq

COLUMNS = (
    text("name", "Name"),
    number("size", "Size in kB"),
    time("born", ""),
    flag("up", "Up"),
)
RESULT = Result(
    COLUMNS,
    [("b", 2, 1000, True), ("c", None, 0, False), ("a", 10, 3000, True)],
    plain="Java's text\n",
)


def shown(view: View) -> Sequence[tuple[object, ...]]:
    return view.apply(RESULT).rows


def test_columns_are_chosen_by_json_name_and_by_title_in_the_order_given() -> None:
    result = View(columns=("size in KB", "name")).apply(RESULT)
    assert [column.name for column in result.columns] == ["size", "name"]
    assert result.rows == [(2, "b"), (None, "c"), (10, "a")]


def test_a_chosen_column_has_a_head_even_if_tables_leave_it_out() -> None:
    assert View(columns=("born",)).apply(RESULT).columns[0].title == "born"


def test_rows_are_sorted_as_numbers_and_what_is_not_known_comes_last() -> None:
    assert [row[0] for row in shown(View(sort=("size",)))] == ["b", "a", "c"]
    assert [row[0] for row in shown(View(sort=("-size",)))] == ["a", "b", "c"]
    assert [row[0] for row in shown(View(sort=("-born",)))] == ["a", "b", "c"]


def test_the_first_of_several_sorts_counts_most() -> None:
    assert [row[0] for row in shown(View(sort=("-up", "name")))] == ["a", "b", "c"]


def test_rows_may_be_sorted_by_a_column_that_is_not_shown() -> None:
    assert shown(View(columns=("name",), sort=("-size",))) == [("a",), ("b",), ("c",)]


def test_a_column_of_mixed_values_is_sorted_as_text() -> None:
    result = Result((text("v", "V"),), [(10,), ("x",), (9,)])
    assert View(sort=("v",)).apply(result).rows == [(10,), (9,), ("x",)]


def test_json_items_are_sorted_with_their_rows() -> None:
    result = Result((number("n", "N"),), [(2,), (1,)], data=[{"n": 2, "more": 0}, {"n": 1}])
    assert View(sort=("n",)).apply(result).data == [{"n": 1}, {"n": 2, "more": 0}]


def test_any_choice_replaces_the_text_of_the_java_tool() -> None:
    assert View().apply(RESULT).plain == "Java's text\n"
    for view in (View(columns=("name",)), View(sort=("name",)), View(header=False), View(utc=True)):
        assert view.apply(RESULT).plain is None


def test_an_unknown_column_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match="no column 'nmae'") as caught:
        find(COLUMNS, "nmae")
    assert caught.value.hint == "columns: name, size, born, up"


def test_a_list_without_names_is_refused() -> None:
    with pytest.raises(UsageError, match="--columns contains no column"):
        parse(" ,", None, no_header=False, utc=False)


def test_the_options_work_in_every_format(cluster: Mq) -> None:
    chosen = ("clusterList", "--columns", "brokerName,brokerId")
    assert cluster(*chosen, "-o", "csv").out == "brokerName,brokerId\nbroker-a,0\n"
    assert cluster(*chosen, "-o", "csv", "--no-header").out == "broker-a,0\n"
    assert cluster(*chosen, "-o", "json").json["data"] == [
        {"brokerName": "broker-a", "brokerId": 0}
    ]
    assert cluster(*chosen).out == "#Broker      #Id\nbroker-a       0\n"
    assert cluster(*chosen, "--no-header").out == "broker-a  0\n"
    table = cluster(*chosen, "--no-header", terminal=True, NO_COLOR="1").out
    assert table.split() == ["broker-a", "0"]


def test_a_column_that_begins_with_a_flag_s_name_is_still_sorted_by(cluster: Mq) -> None:
    for name in ("Alpha", "Beta"):
        assert cluster("updateTopic", "-c", "DefaultCluster", "-t", f"Sorted{name}").status == 0
    topics = cluster("topicList", "--sort", "-topic", "-o", "csv").out.splitlines()[1:]
    assert topics == sorted(topics, reverse=True)


def test_an_unknown_column_ends_the_command_with_usage(cluster: Mq) -> None:
    finished = cluster("topicList", "--columns", "nope")
    assert (finished.status, finished.out) == (64, "")
    assert "no column 'nope'" in finished.err


def test_times_are_utc_on_request(cluster: Mq) -> None:
    cluster("updateTopic", "-c", "DefaultCluster", "-t", "InUtc")
    cluster("sendMessage", "-t", "InUtc", "-p", "x")
    chosen = ("topicStatus", "-t", "InUtc", "--columns", "lastUpdated", "--sort", "lastUpdated")
    first = cluster(*chosen, "--utc", "--no-header").out.splitlines()[0]
    assert first.endswith("Z") and "T" in first
    assert "T" not in cluster(*chosen, "--no-header").out
