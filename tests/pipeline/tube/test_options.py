import re
from pathlib import Path

import pytest

from mq.pipeline.errors import OptionError
from mq.pipeline.offsets import EARLIEST, LATEST, Offsets
from mq.pipeline.progress import lag_by_queue
from mq.pipeline.tube.offsets import TubePartition, from_keys, to_keys
from mq.pipeline.tube.options import TubeReadOptions, parse_tube_options

GOOD = {"masters": "127.0.0.1:8715", "topic": "orders", "group": "spark"}


def parsed(**more: str) -> TubeReadOptions:
    return parse_tube_options({**GOOD, **more})


def test_names_match_in_any_case_and_masters_have_their_port() -> None:
    options = parsed(MASTERS="a,b:1", Topic="orders, refunds")
    assert (options.masters, options.topics) == ("a:8715,b:1", ("orders", "refunds"))


def test_filters_apply_to_all_topics_or_to_the_named_ones() -> None:
    both = {"topic": "orders,refunds"}
    assert parsed(**both).subscription() == {"orders": None, "refunds": None}
    found = parsed(**both, filters="paid, sent").subscription()
    assert {topic: set(types or ()) for topic, types in found.items()} == {
        "orders": {"paid", "sent"},
        "refunds": {"paid", "sent"},
    }
    assert parsed(**both, filters='{"orders": ["paid"]}').subscription() == {
        "orders": ("paid",),
        "refunds": None,
    }


def test_offsets_are_given_by_partition_key_and_survive_the_checkpoint() -> None:
    given = '{"1:orders:0": 2800, "1:orders:10001": -2}'
    wanted: Offsets = {
        TubePartition("orders", "1", 0): 2800,
        TubePartition("orders", "1", 10001): EARLIEST,
    }
    assert parsed(startingOffsets=given).starting_offsets == wanted
    assert from_keys(to_keys(wanted)) == wanted
    assert parsed(endingOffsets="Latest").ending_offsets == LATEST


def test_the_access_key_is_user_and_password_and_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "tools.yml"
    file.write_text("accessKey: me\nsecretKey: very secret\n")
    options = parsed(aclFile=str(file))
    credentials = options.client_keywords()["credentials"]
    assert (credentials.user, credentials.password) == ("me", "very secret")
    assert "very secret" not in repr(options)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"masters": ""}, "option masters: "),
        ({"masters": "a:b"}, "option masters: "),
        ({"topic": "1st"}, "option topic: "),
        ({"group": "no group"}, "option group: "),
        ({"filters": '{"orders": "paid"}'}, "option filters: the types of orders are not a list"),
        ({"filters": "{"}, "option filters: no JSON"),
        ({"filters": "a-b"}, "option filters: "),
        ({"filters": '{"others": ["paid"]}'}, "option filters: others is not among the topics"),
        ({"startingOffsets": '{"orders": 0}'}, "option startingOffsets: "),
        ({"startingOffsets": '{"1:orders:0": 27}'}, "the offset 27 of partition 1:orders:0: it is"),
        ({"endingOffsets": '{"1:orders:0": -3}'}, "the offset -3 of partition 1:orders:0"),
        ({"endingOffsets": "[]"}, "option endingOffsets: the whole is not an object"),
        ({"requestTimeoutMs": "1"}, "option requestTimeoutMs: '1' is not a number from 8000"),
        ({"tls.client.certPath": "/nowhere", "useTLS": "true"}, "option useTLS: "),
        ({"minPartitions": "2"}, "option minPartitions: there is none"),
    ],
)
def test_a_wrong_option_is_named_with_a_valid_example(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=re.escape(message)) as caught:
        parsed(**given)
    assert "for example .option(" in str(caught.value)


@pytest.mark.parametrize("name", GOOD)
def test_a_missing_required_option_is_named(name: str) -> None:
    given = {key: text for key, text in GOOD.items() if key != name}
    with pytest.raises(OptionError, match=f"option {name}: it is needed"):
        parse_tube_options(given)


def test_the_lag_of_a_query_is_counted_in_records() -> None:
    progress = {
        "sources": [
            {"endOffset": '{"1:orders:0": 56}', "latestOffset": '{"1:orders:0": 140}'},
            {"endOffset": {"T": {"b": {"0": 1}}}, "latestOffset": {"T": {"b": {"0": 4}}}},
        ]
    }
    assert {str(queue): lag for queue, lag in lag_by_queue(progress).items()} == {
        "partition 1:orders:0": 3,
        "queue 0 of topic T at broker b": 3,
    }
