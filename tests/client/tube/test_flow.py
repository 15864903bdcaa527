"""How fast a partition may be read."""

import json
from math import inf
from typing import Any

import pytest

from mq.client.tube.flow import FlowRules, GroupFlow, PartitionFlow, Reply, time_of_rules
from mq.protocol.tube.codes import Code
from mq.protocol.tube.flow_control import FlowControl

MIB = 1024 * 1024


def limit(lag: int, most: int, interval: int, start: str = "00:00", end: str = "24:00") -> Any:
    return {"start": start, "end": end, "dltInM": lag, "limitInM": most, "freqInMs": interval}


def text(kind: int, *rules: Any) -> str:
    return json.dumps([{"type": kind, "rule": list(rules)}])


def rules(kind: int, *of: Any) -> FlowRules:
    return FlowRules(FlowControl.parse(text(kind, *of)))


def group(group_rules: str = " ", default_rules: str = " ") -> GroupFlow:
    flow = GroupFlow()
    flow.update_group(1, group_rules)
    flow.update_default(1, default_rules)
    return flow


def read(size: int = 0, lag: int = 100 * MIB, **fields: Any) -> Reply:
    return Reply(Code.SUCCESS, 0.0, size, lag=lag, **fields)


def test_a_limit_holds_behind_its_lag_within_its_times() -> None:
    found = rules(0, limit(30, 5, 500, "08:00", "12:00"))
    assert found.data_limit(30 * MIB, 900) is None
    at = found.data_limit(30 * MIB + 1, 800)
    assert at is not None and (at.limit, at.interval_ms) == (5 * MIB, 500)
    assert found.data_limit(31 * MIB, 1200) is not None
    assert found.data_limit(31 * MIB, 759) is None
    assert found.data_limit(31 * MIB, 1201) is None


def test_of_limits_that_hold_the_one_that_starts_first_counts() -> None:
    found = rules(0, limit(30, 1, 200, "10:00", "23:00"), limit(30, 2, 200, "08:00", "23:00"))
    at = found.data_limit(inf, 1100)
    assert at is not None and at.limit == 2 * MIB


def test_of_rules_for_empty_replies_the_one_of_most_that_was_reached_counts() -> None:
    found = rules(1, {"zeroCnt": 3, "freqInMs": 300}, {"zeroCnt": 10, "freqInMs": 1000})
    assert [found.empty_seconds(count) for count in (2, 3, 9, 10, 99)] == [
        *(None, 0.3, 0.3, 1.0, 1.0),
    ]


def test_without_rules_the_delay_is_what_the_code_asks_for() -> None:
    flow, none = PartitionFlow(), group()
    assert flow.delay(read(5), none, False, 0.0) == 0.0
    assert flow.delay(Reply(Code.NOT_FOUND, 0, delay=0.4), none, False, 0.1) == 0.4
    assert flow.delay(Reply(Code.FORBIDDEN, 0, delay=2.0), none, False, 0.2) == 2.0


def test_empty_replies_in_a_row_are_counted_until_one_has_something() -> None:
    flow = PartitionFlow()
    holding = group(text(1, {"zeroCnt": 2, "freqInMs": 7000}))
    empty = Reply(Code.NOT_FOUND, 0, delay=0.4)
    assert [flow.delay(empty, holding, False, 0.0) for _ in range(3)] == [0.4, 7.0, 7.0]
    flow.delay(read(1), holding, False, 0.0)
    assert flow.delay(empty, holding, False, 0.0) == 0.4


def test_rules_of_the_group_for_empty_replies_go_before_the_default_ones() -> None:
    default = text(1, {"zeroCnt": 1, "freqInMs": 9000})
    empty = Reply(Code.NOT_FOUND, 0, delay=0.4)
    own = text(1, {"zeroCnt": 5, "freqInMs": 100})
    assert PartitionFlow().delay(empty, group(own, default), False, 0.0) == 0.4
    assert PartitionFlow().delay(empty, group(" ", default), False, 0.0) == 9.0


def test_a_slice_has_a_twelfth_of_the_limit_and_the_next_one_has_its_own() -> None:
    flow, holding = PartitionFlow(), group(text(0, limit(21, 12, 5000)))
    assert flow.delay(read(50 * MIB), holding, False, 0.0) == 0.0  # it begins the stage
    assert flow.delay(read(MIB - 1), holding, False, 1.0) == 0.0
    assert flow.delay(read(1), holding, False, 2.0) == 5.0
    assert flow.delay(read(1), holding, False, 5.1) == 0.0  # which begins the next slice
    assert flow.delay(read(MIB), holding, False, 6.0) == 5.0


def test_the_next_stage_looks_for_its_limit_anew() -> None:
    flow, holding = PartitionFlow(), group(text(0, limit(21, 12, 5000)))
    flow.delay(read(), holding, False, 0.0)
    assert flow.delay(read(12 * MIB), holding, False, 50.0) == 5.0
    assert flow.delay(read(1, lag=MIB), holding, False, 60.0) == 5.0  # the stage is not over
    # it is not as far behind any more: nothing limits it
    assert flow.delay(read(99 * MIB, lag=MIB), holding, False, 60.1) == 0.0
    assert flow.delay(read(99 * MIB, lag=MIB), holding, False, 62.0) == 0.0


def test_as_long_as_the_lag_is_not_known_nothing_is_limited() -> None:
    flow, holding = PartitionFlow(), group(text(0, limit(21, 1, 5000)))
    assert flow.delay(read(99 * MIB, lag=-2), holding, False, 0.0) == 0.0
    assert flow.delay(read(99 * MIB, lag=-2), holding, False, 1.0) == 0.0


def test_limits_of_the_group_go_before_the_default_ones() -> None:
    both = group(text(0, limit(21, 12, 300)), text(0, limit(21, 0, 900)))
    flow = PartitionFlow()
    flow.delay(read(), both, False, 0.0)
    assert flow.delay(read(MIB), both, False, 1.0) == 0.3
    flow = PartitionFlow()
    near = 25 * MIB  # the group's rule applies to a larger lag only
    both = group(text(0, limit(30, 12, 300)), text(0, limit(21, 0, 900)))
    flow.delay(read(lag=near), both, False, 0.0)
    assert flow.delay(read(1, lag=near), both, False, 1.0) == 0.9


def test_what_the_code_asks_for_is_waited_for_at_least() -> None:
    flow, holding = PartitionFlow(), group(text(0, limit(21, 0, 300)))
    flow.delay(read(), holding, False, 0.0)
    assert flow.delay(read(1, delay=2.0), holding, False, 1.0) == 2.0


def test_a_broker_that_does_not_limit_us_is_read_on_at_once() -> None:
    flow, holding = PartitionFlow(), group(text(0, limit(21, 0, 5000)))
    flow.delay(read(), holding, False, 0.0)
    assert flow.delay(read(9, escapes=True), holding, False, 1.0) == 0.0


LOW = {"normFreqInMs": 100, "filterFreqInMs": 200, "minDataFilterFreqInMs": 400}


@pytest.mark.parametrize(
    ("filtered", "slow", "delay"), [(False, True, 0.1), (True, False, 0.2), (True, True, 0.4)]
)
def test_low_fetch_rules_slow_down_who_finds_something(
    filtered: bool, slow: bool, delay: float
) -> None:
    flow, holding = PartitionFlow(), group(text(3, LOW))
    assert flow.delay(read(9, is_slow=slow), holding, filtered, 0.0) == delay


def test_low_fetch_rules_that_say_nothing_of_a_case_change_nothing() -> None:
    flow = PartitionFlow()
    assert flow.delay(read(9), group(text(3, {"normFreqInMs": 100})), True, 0.0) == 0.0
    own = text(3, {"normFreqInMs": 0})
    assert PartitionFlow().delay(read(9), group(own, text(3, LOW)), False, 0.0) == 0.0
    assert PartitionFlow().delay(read(9), group(" ", text(3, LOW)), False, 0.0) == 0.1


def test_rules_change_with_their_number_only_and_stay_if_they_cannot_be_read() -> None:
    flow = group(text(3, LOW))
    flow.update_group(1, " ")
    assert flow.group.low_fetch is not None
    flow.update_group(2, "[{")
    assert flow.group.low_fetch is not None and flow.group_id == 2
    flow.update_group(-2, " ")
    assert flow.group.low_fetch is None and flow.group_id == -2


def test_whether_a_group_is_limited_is_looked_up_each_ten_seconds() -> None:
    flow = group(text(0, limit(21, 1, 300)))
    assert flow.is_limited(0.0)
    flow.group = FlowRules()
    assert flow.is_limited(9.9)
    assert not flow.is_limited(10.0)
    flow.update_group(5, text(0, limit(21, 1, 300)))
    assert flow.is_limited(10.1)


def test_default_limits_do_not_make_a_group_limited() -> None:
    assert not group(" ", text(0, limit(21, 1, 300))).is_limited(0.0)


def test_rules_are_meant_for_the_time_in_beijing() -> None:
    assert 0 <= time_of_rules() <= 2359 and time_of_rules() % 100 < 60
