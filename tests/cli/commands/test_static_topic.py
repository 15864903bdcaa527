from pathlib import Path

import pytest

from mq.daemons.standalone import Standalone
from tests.cli.support import Mq


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_a_broker_without_static_topics_is_said_to_be_older(
    cluster: Mq, standalone: Standalone
) -> None:
    made = cluster("updateStaticTopic", "-b", "broker-a", "-t", "Static", "-qn", "3")
    assert (made.status, made.out) == (69, "")
    assert made.err.splitlines()[0] == (
        f"mq updateStaticTopic: {standalone.broker.address}: the broker is older than RocketMQ 5, "
        "which updateStaticTopic needs"
    )


@pytest.mark.parametrize(
    ("words", "status", "complaint"),
    [
        (("updateStaticTopic", "-t", "T", "-qn", "3"), 64, "one of -c/--clusters or -b/--brokers"),
        (("updateStaticTopic", "-t", "T", "-qn", "0", "-b", "broker-a"), 64, "-qn/--totalQueueNum"),
        (
            ("updateStaticTopic", "-t", "T", "-qn", "2", "-b", "none"),
            66,
            "broker none has no master",
        ),
        (("updateStaticTopic", "-t", "T", "-qn", "2", "-c", "none"), 66, "no cluster 'none'"),
        (("updateStaticTopic", "-t", "T", "-qn", "2", "-b", ","), 64, "no broker given"),
        (("updateStaticTopic", "-t", "../T", "-qn", "2", "-b", "broker-a"), 64, "../T"),
        (("remappingStaticTopic", "-t", "NoStatic", "-b", "broker-a"), 66, "no broker has topic"),
    ],
)
def test_what_cannot_be_is_refused(
    words: tuple[str, ...], status: int, complaint: str, cluster: Mq
) -> None:
    finished = cluster(*words)
    assert (finished.status, finished.out) == (status, "")
    assert complaint in finished.err


def test_an_ordinary_topic_does_not_become_a_static_one(cluster: Mq) -> None:
    cluster("updateTopic", "-c", "DefaultCluster", "-t", "Ordinary")
    for words in (("updateStaticTopic", "-qn", "3"), ("remappingStaticTopic",)):
        finished = cluster(*words, "-t", "Ordinary", "-b", "broker-a")
        assert (finished.status, finished.out) == (65, "")
        assert "topic Ordinary is an ordinary one at broker broker-a" in finished.err


@pytest.mark.parametrize(
    ("content", "status", "complaint"),
    [
        (None, 66, "no file"),
        ("{", 65, "plan.json: "),
        ("{}", 65, "a plan without brokers"),
        ('{"brokerConfigMap":{"broker-a":{"topicName":"T"}}}', 65, "is not a static one at"),
    ],
)
def test_a_plan_that_cannot_be_used_is_refused(
    content: str | None, status: int, complaint: str, cluster: Mq, tmp_path: Path
) -> None:
    file = tmp_path / "plan.json"
    if content is not None:
        file.write_text(content)
    words = ("-t", "T", "-b", "broker-a", "-mf", str(file))
    for command in (("updateStaticTopic", "-qn", "2"), ("remappingStaticTopic",)):
        finished = cluster(*command, *words)
        assert (finished.status, finished.out) == (status, "")
        assert complaint in finished.err
        if content is not None:
            piped = cluster(*command, *words[:-1], "-", typed=content)
            assert (piped.status, piped.out) == (status, "")
            assert complaint.replace("plan.json", "standard input") in piped.err
