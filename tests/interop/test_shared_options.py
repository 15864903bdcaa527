"""What all commands share works with Java's name servers and brokers, too: both releases."""

import pytest

from tests.cli.support import Mq
from tests.interop.conftest import JavaCluster

pytestmark = pytest.mark.java

TOPIC = "SharedOptions"


@pytest.fixture
def mq(java_cluster: JavaCluster, tmp_path_factory: pytest.TempPathFactory) -> Mq:
    folder = tmp_path_factory.mktemp("shared-options")
    variables = {
        "NAMESRV_ADDR": java_cluster.namesrv,
        "MQ_CACHE_DIR": str(folder / "cache"),
        "MQ_STATE_DIR": str(folder / "state"),
    }
    return Mq(folder / "config", variables)


def test_names_are_completed_and_a_dry_run_changes_nothing(
    mq: Mq, java_cluster: JavaCluster
) -> None:
    shown = mq("updateTopic", "-b", java_cluster.broker, "-t", f"{TOPIC}Dry", "--dry-run")
    assert shown.out.startswith(f"UPDATE_AND_CREATE_TOPIC (17) to {java_cluster.broker}\n")
    made = mq("updateTopic", "-b", java_cluster.broker, "-t", TOPIC, "-r", "1", "-w", "1")
    assert made.status == 0, made.err
    mq("updateSubGroup", "-b", java_cluster.broker, "-g", "SharedGroup")
    sent = mq("sendMessage", "-t", TOPIC, "-p", '{"a": 1}', "-k", "shared-key")
    assert sent.status == 0, sent.err

    def names(kind: str, *words: str) -> list[str]:
        return mq("__complete", kind, "mq", *words).out.split()

    topics = names("topics", "-t", "Shared")
    assert topics == [TOPIC]  # and not the one of the dry run
    assert "SharedGroup" in names("groups", "")
    assert names("brokers", "") == [java_cluster.broker_name]
    assert names("addresses", "") == [java_cluster.broker]
    assert names("clusters", "") == ["DefaultCluster"]
    assert names("keys", "-t", TOPIC, "-k", "") == ["shared-key"]
    told = mq("printMsg", "-t", TOPIC, "--format", r"%q %o %k %b\n", "--body", "json")
    assert told.out == '0 0 shared-key {"a":1}\n'
    listed = mq("clusterList", "--columns", "brokerName,brokerAddr", "-o", "csv", "--no-header")
    assert listed.out == f"{java_cluster.broker_name},{java_cluster.broker}\n"
    deleted = mq("deleteTopic", "-c", "DefaultCluster", "-t", TOPIC, "--dry-run")
    assert "DELETE_TOPIC_IN_BROKER" in deleted.out
    assert TOPIC in mq("topicList").out.split()
