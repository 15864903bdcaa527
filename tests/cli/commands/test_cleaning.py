import pytest

from mq.daemons.standalone import Standalone
from tests.cli.support import Mq

COMMANDS = ["cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"]


@pytest.mark.parametrize("command", COMMANDS)
def test_plain_is_success_without_a_line_end(
    command: str, cluster: Mq, standalone: Standalone
) -> None:
    for where in ((), ("-c", "DefaultCluster"), ("-b", standalone.broker.address)):
        assert cluster(command, *where).out == "success"


@pytest.mark.parametrize("command", COMMANDS)
def test_json_names_the_brokers(command: str, cluster: Mq, standalone: Standalone) -> None:
    data = cluster(command, "-o", "json").json["data"]
    assert data == [{"brokerAddr": standalone.broker.address}]


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_cluster_is_not_found(command: str, cluster: Mq) -> None:
    finished = cluster(command, "-c", "Nowhere")
    assert (finished.status, finished.out) == (66, "")
    assert "no cluster 'Nowhere' (known: DefaultCluster)" in finished.err


@pytest.mark.parametrize("words", [[""], ["-b", ""], ["-c", ""]])
@pytest.mark.parametrize(
    "command", ["cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"]
)
def test_an_empty_name_does_not_mean_every_broker(
    command: str, words: list[str], cluster: Mq
) -> None:
    refused = cluster(command, *words, "--dry-run")
    assert (refused.status, refused.out) == (64, "")
    assert "empty" in refused.err
