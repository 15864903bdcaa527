import json

import pytest

from mq.protocol.tube.errors import MalformedText
from mq.protocol.tube.flow_control import DataLimit, EmptyPolls, FlowControl, LowFetch
from tests.protocol.tube.examples import LIMIT, LOW, POLLS, rules

MIB = 1024 * 1024


def test_all_kinds_are_read() -> None:
    text = json.dumps(
        [
            {"type": 0, "rule": [LIMIT, {**LIMIT, "start": "0:05", "end": "24:00", "limitInM": 0}]},
            {"type": 1, "rule": [POLLS]},
            {"type": 2, "rule": "of no use"},
            {"type": 3, "rule": [LOW]},
        ]
    )
    assert FlowControl.parse(text) == FlowControl(
        (DataLimit(800, 1230, 1024, 20 * MIB, 1000), DataLimit(5, 2400, 1024, 0, 1000)),
        (EmptyPolls(3, 300),),
        LowFetch(0, 100, 400),
    )


@pytest.mark.parametrize("text", ["", " ", "[]"])
def test_no_rules_limit_nothing(text: str) -> None:
    assert not FlowControl.parse(text)


def test_what_low_fetch_does_not_say_is_none() -> None:
    assert FlowControl.parse(rules(3, {"normFreqInMs": 5})).low_fetch == LowFetch(5, None, None)
    assert FlowControl.parse(rules(3, {})).low_fetch == LowFetch()


def test_numbers_may_be_text() -> None:
    assert FlowControl.parse(rules("1", {"zeroCnt": "3", "freqInMs": "300"})).empty_polls == (
        EmptyPolls(3, 300),
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "not JSON"),
        ("{}", "a list"),
        ("[1]", "is not an object"),
        ("[{}]", "needs a number type"),
        (rules(4, {}), "type=4"),
        (rules(0), "has no rule"),
        (json.dumps([{"type": 0}]), "has no rule"),
        (rules(0, 5), "is not an object"),
        (rules(0, {**LIMIT, "start": "12:30"}), "ends before it starts"),
        (rules(0, {**LIMIT, "end": "25:00"}), "no clock shows"),
        (rules(0, {**LIMIT, "end": "10:60"}), "no clock shows"),
        (rules(0, {**LIMIT, "start": None}), "needs a time start"),
        (rules(0, {**LIMIT, "start": "\u0661:00"}), "needs a time start"),
        (rules(0, {**LIMIT, "dltInM": 20}), "dltInM=20"),
        (rules(0, {**LIMIT, "limitInM": -1}), "limitInM=-1"),
        (rules(0, {**LIMIT, "freqInMs": 199}), "freqInMs=199"),
        (rules(0, {**LIMIT, "freqInMs": True}), "needs a number freqInMs"),
        (rules(0, {**LIMIT, "freqInMs": 1.5}), "needs a number freqInMs"),
        (rules(1, {**POLLS, "zeroCnt": 0}), "zeroCnt=0"),
        (rules(1, {**POLLS, "freqInMs": 2**31}), "freqInMs=2147483648"),
        (rules(3, LOW, LOW), "one rule only"),
        (rules(3, {"normFreqInMs": 300_001}), "normFreqInMs=300001"),
        (rules(3, {"filterFreqInMs": 1}), "needs a number minDataFilterFreqInMs"),
        (rules(3, {**LOW, "minDataFilterFreqInMs": 99}), "minDataFilterFreqInMs=99"),
        ("[" * 60_000, "not JSON"),
        (" " * 70_000 + "1", "70001 characters"),
    ],
)
def test_rules_out_of_their_bounds_are_refused(text: str, why: str) -> None:
    with pytest.raises(MalformedText, match=why):
        FlowControl.parse(text)
