"""Destructive commands ask for confirmation at a terminal."""

from string import Formatter

import pytest

from mq.cli import catalog
from mq.cli.main import load
from mq.cli.runtime.effects import effect_of
from tests.cli.support import Mq

DELETE = ("deleteTopic", "-c", "DefaultCluster", "-t")


@pytest.fixture
def topic(cluster: Mq) -> str:
    assert cluster("updateTopic", "-c", "DefaultCluster", "-t", "Asked").status == 0
    return "Asked"


def exists(cluster: Mq, topic: str) -> bool:
    return topic in cluster("topicList").out.split()


@pytest.mark.parametrize("answer", ["n\n", "\n", "", "what?\n"])
def test_whatever_is_not_yes_changes_nothing(answer: str, cluster: Mq, topic: str) -> None:
    finished = cluster(*DELETE, topic, typed=answer)
    assert (finished.status, finished.out) == (130, "")
    assert finished.err.startswith(f"Delete topic {topic}")
    assert "nothing was done\nhint: without confirmation: --yes" in finished.err
    assert exists(cluster, topic)


@pytest.mark.parametrize("answer", ["y\n", "YES\n"])
def test_yes_does_it(answer: str, cluster: Mq, topic: str) -> None:
    assert cluster(*DELETE, topic, typed=answer).status == 0
    assert not exists(cluster, topic)


def test_the_option_answers_beforehand(cluster: Mq, topic: str) -> None:
    finished = cluster(*DELETE, topic, "--yes", typed="")
    assert (finished.status, finished.err) == (0, "")
    assert not exists(cluster, topic)


def test_a_script_never_meets_a_question(cluster: Mq, topic: str) -> None:
    finished = cluster(*DELETE, topic)
    assert (finished.status, finished.err) == (0, "")
    assert not exists(cluster, topic)


def test_a_name_that_could_paint_the_terminal_is_quoted(cluster: Mq) -> None:
    finished = cluster(*DELETE, "x\x1b[2J", typed="n\n")
    assert "\x1b" not in finished.err
    assert r"'x\x1b[2J'" in finished.err


def test_every_question_names_options_that_the_command_has() -> None:
    for group, names in catalog.GROUPS.items():
        for name in names:
            declared = load(group, name)
            question = effect_of(declared.function).destroys
            fields = {field for _, field, _, _ in Formatter().parse(question) if field}
            assert fields <= set(declared.own_names), name
