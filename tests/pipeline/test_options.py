import re
from pathlib import Path

import pytest

from mq.pipeline.errors import OptionError
from mq.pipeline.offsets import EARLIEST, Queue, from_nested, to_nested
from mq.pipeline.options import ReadOptions, parse_options

GOOD = {"nameServer": "127.0.0.1:9876", "topic": "Orders"}


def parsed(**more: str) -> ReadOptions:
    return parse_options({**GOOD, **more})


def test_names_match_in_any_case() -> None:
    options = parse_options({"NAMESERVER": "a:1,b:2", "Topic": "A, B", "pullbatchsize": "7"})
    assert (options.name_server, options.topics, options.batch) == ("a:1;b:2", ("A", "B"), 7)


def test_offsets_are_given_by_topic_broker_and_queue() -> None:
    options = parsed(startingOffsets='{"Orders": {"broker-a": {"0": 23, "1": -2}}}')
    assert options.starting_offsets == {
        Queue("Orders", "broker-a", 0): 23,
        Queue("Orders", "broker-a", 1): EARLIEST,
    }
    assert parsed(startingOffsets="Earliest").starting_offsets == EARLIEST


def test_times_are_milliseconds_or_iso_8601_with_a_zone() -> None:
    assert parsed(startingTimestamp="1700000000123").starting_timestamp == 1700000000123
    at = parsed(endingTimestamp="2023-11-14T23:13:20+01:00").ending_timestamp
    assert at == 1_700_000_000_000


def test_the_access_key_of_a_file_is_read_and_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "tools.yml"
    file.write_text("accessKey: me\nsecretKey: very secret\n")
    options = parsed(aclFile=str(file))
    assert options.access_key is not None and options.access_key.access_key == "me"
    assert "very secret" not in repr(options)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"startingOffsets": "{"}, "option startingOffsets: neither earliest nor latest nor JSON"),
        ({"startingOffsets": "[]"}, "option startingOffsets: the whole is not an object"),
        ({"endingOffsets": '{"T": {"b": {"x": 1}}}'}, "option endingOffsets: 'x' of topic T"),
        ({"endingOffsets": '{"T": {"b": {"0": -3}}}'}, "option endingOffsets: the offset -3"),
        ({"startingTimestamp": "yesterday"}, "option startingTimestamp: 'yesterday' is neither"),
        ({"startingTimestamp": "2026-01-01"}, "has no time zone"),
        ({"failOnDataLoss": "maybe"}, "option failOnDataLoss: 'maybe' is neither true nor false"),
        ({"pullBatchSize": "0"}, "option pullBatchSize: '0' is not a number from 1 to 100000"),
        ({"nameServer": "nowhere"}, "option nameServer: 'nowhere' is not host:port"),
        ({"topic": "a b"}, "option topic: "),
        ({"topicPattern": "x"}, "option topic: give either this or topicPattern"),
        ({"subExpression": "||"}, "option subExpression: the tag expression '||' names no tag"),
        ({"subExpressionType": "XPATH"}, "option subExpressionType: 'XPATH' is neither TAG nor"),
        ({"aclFile": "/nowhere.yml"}, "option aclFile: /nowhere.yml cannot be read"),
        ({"maxTriggerDelay": "soon"}, "option maxTriggerDelay: 'soon' is not a duration such as"),
        ({"commitOffsets": "group"}, "option group: commitOffsets needs one"),
        (
            {"startingOffsets": "latest", "startingTimestamp": "1"},
            "option startingTimestamp: give either this or startingOffsets",
        ),
        (
            {"useTLS": "true", "tls.client.authServer": "true", "tls.client.trustCertPath": "/no"},
            "option useTLS: tls.client.trustCertPath=/no cannot be used",
        ),
    ],
)
def test_a_wrong_option_is_named_with_a_valid_example(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=re.escape(message)) as raised:
        parse_options({**GOOD, **given})
    assert "; for example .option(" in str(raised.value)


def test_an_unknown_option_gets_the_nearest_name() -> None:
    with pytest.raises(OptionError, match=r'mean nameServer\?; for example .option\("nameServer"'):
        parse_options({"nameServers": "a:1"})


def test_the_name_server_is_required() -> None:
    with pytest.raises(OptionError, match="option nameServer: it is needed"):
        parse_options({"topic": "T"})


def test_offsets_survive_the_checkpoint() -> None:
    offsets = {Queue("B", "y", 10): 5, Queue("A", "x", 2): 2**40, Queue("B", "y", 9): 0}
    nested = to_nested(offsets)
    assert list(nested) == ["A", "B"] and list(nested["B"]["y"]) == ["9", "10"]
    assert from_nested(nested) == offsets
