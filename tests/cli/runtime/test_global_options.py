"""Options before the command."""

import pytest

from mq.cli.runtime.errors import UsageError
from mq.cli.runtime.global_options import GlobalOption, split
from tests.cli.support import Mq


def test_shared_options_are_taken_up_to_the_command() -> None:
    given, rest = split(
        ["--context", "dev", "-n", "a:1", "--utc", "topicList", "-o", "json", "--watch", "2"]
    )
    assert given == [
        GlobalOption("--context", ("--context",), "dev"),
        GlobalOption("-n", ("--namesrvAddr", "--masters"), "a:1"),
        GlobalOption("--utc", ("--utc",), value=True),
    ]
    assert rest == ["topicList", "-o", "json", "--watch", "2"]


@pytest.mark.parametrize(
    "words", [["--output=json"], ["-ojson"], ["-o", "json"], ["--OUTPUT", "json"], ["-o=json"]]
)
def test_all_spellings_are_the_same_option(words: list[str]) -> None:
    given, rest = split([*words, "topicList"])
    assert [(item.longs, item.value) for item in given] == [(("--output",), "json")]
    assert rest == ["topicList"]


@pytest.mark.parametrize("word", ["--help", "-V", "-t", "--no-such", "-", "topicList"])
def test_what_is_no_shared_option_is_left(word: str) -> None:
    assert split([word, "x"]) == ([], [word, "x"])


@pytest.mark.parametrize("words", [["-n"], ["--output"]])
def test_an_option_without_its_value_is_refused(words: list[str]) -> None:
    with pytest.raises(UsageError, match=f"{words[0]} needs a value"):
        split(words)


def test_a_switch_with_a_value_is_refused() -> None:
    with pytest.raises(UsageError, match="--utc takes no value"):
        split(["--utc=1", "topicList"])


def test_they_mean_before_a_command_what_they_mean_behind_it(cluster: Mq) -> None:
    behind = cluster("topicStatus", "-t", "SELF_TEST_TOPIC", "-o", "json", "--columns", "queueId")
    before = cluster("-o", "json", "--columns", "queueId", "topicStatus", "SELF_TEST_TOPIC")
    assert behind.status == 0
    assert before == behind


def test_what_stands_behind_the_command_wins(cluster: Mq) -> None:
    assert cluster("-o", "json", "topicList", "-o", "csv").out.splitlines()[0] == "topic"
    assert cluster("-o", "json", "-o", "csv", "topicList").out.splitlines()[0] == "topic"


def test_a_context_before_the_command_says_which_cluster(cluster: Mq) -> None:
    address = cluster.variables["NAMESRV_ADDR"]
    elsewhere = cluster.having({"NAMESRV_ADDR": "127.0.0.1:1"})
    assert elsewhere("context", "add", "here", "-n", address).status == 0
    assert elsewhere("topicList").status != 0
    assert elsewhere("--context", "here", "topicList").status == 0
    assert elsewhere("-n", address, "topic", "list").status == 0


def test_short_options_before_a_command_are_the_shared_ones(cluster: Mq) -> None:
    # updateTopic has a -o of its own: the topic's order. Before it, -o is --output.
    finished = cluster(
        *("-o", "csv", "--dry-run", "updateTopic", "FirstOrder", "-c", "DefaultCluster"),
        *("-o", "true"),
    )
    assert finished.status == 0
    assert "order" in finished.out
    assert finished.out.splitlines()[0].count(",") > 2


def test_a_daemons_own_option_of_the_name_takes_it(mq: Mq) -> None:
    finished = mq("-n", "10.0.0.9:9876", "broker", "-p")
    assert finished.status == 0
    assert "namesrvAddr=10.0.0.9:9876" in finished.out


def test_one_that_the_command_does_not_take_is_refused(mq: Mq) -> None:
    finished = mq("--yes", "topicList")
    assert (finished.status, finished.out) == (64, "")
    assert finished.err.startswith("mq topicList: the command has no option --yes")


def test_alone_they_ask_for_a_command(mq: Mq) -> None:
    finished = mq("--context", "dev")
    assert (finished.status, finished.out) == (64, "")
    assert finished.err.startswith("mq: no command after --context")
    assert mq("-n", "a:1", "--help").status == 0


def test_an_option_of_the_command_s_own_is_not_meant_before_it(cluster: Mq) -> None:
    refused = cluster("--body", "hex", "sendMessage", "SELF_TEST_TOPIC", "--dry-run")
    assert refused.status == 64
    assert "the command has no option --body" in refused.err
    assert cluster("--body", "hex", "printMsg", "SELF_TEST_TOPIC").status == 0


def test_help_before_the_options_is_help_of_the_command(mq: Mq) -> None:
    assert mq("-h", "-n", "a:1", "topicList").out == mq("topicList", "-h").out
