"""The status of an empty result: 0 for lists and searches, 66 if a named subject does not exist."""

import json
from pathlib import Path

import pytest

from mq.cli.runtime.status import Status
from mq.daemons.standalone import Standalone
from tests.cli.pairs import make_topic
from tests.cli.support import Mq
from tests.daemons.broker.store.damaged import written

ABSENT_ID = "7F0000017FAD18B4AAC2800000000000"

# Topic EmptyTopic and group EmptyGroup exist, and are empty.
EMPTY = [
    "topicStatus -t EmptyTopic",
    "topicClusterList -t EmptyTopic",
    "consumerProgress",
    "consumerProgress -g EmptyGroup",
    "consumerConnection -g EmptyGroup",
    "consumerStatus -g EmptyGroup -o json",
    "consumer -g EmptyGroup -o json",
    "producer -b BROKER",
    "brokerConsumeStats -b BROKER",
    "statsAll -t EmptyTopic",
    "statsAll -a -t EmptyTopic",
    "printMsg -t EmptyTopic",
    "printMsgByQueue -t EmptyTopic -a broker-a -i 0 -p true",
    "consumeMessage -t EmptyTopic",
    "message export - -t EmptyTopic",
    "message export - -t EmptyTopic --tag none",
    "message copy -t EmptyTopic --to-topic OtherTopic",
    "message import /dev/null",
    "dlq list",
    "dlq show -g EmptyGroup",
    "dlq resend -g EmptyGroup --all",
    "dlq resend -g EmptyGroup --all --dry-run",
    "dlq export - -g EmptyGroup",
    "dlq export FOLDER/letters.jsonl -g EmptyGroup",
    "offset export -",
    "offset export - -g EmptyGroup",
    "offset export - -g nobody-*",
    "offset export - -t EmptyTopic",
    "offset import /dev/null",
    "snodeList",
    "top --count 1 --interval 0.1 --filter nothing-has-this",
    "store inspect FOLDER/store -t Nothing*",
    "store dump FOLDER/store -t Nothing*",
    "store dump FOLDER/store -b now",
    "store verify FOLDER/store",
    "bench consume -t EmptyTopic -d 0.2",
    "context list",
]
ABSENT = [
    "topicStatus -t NoTopic",
    "topicRoute -t NoTopic",
    "topicClusterList -t NoTopic",
    "consumerProgress -g NoGroup",
    "consumerConnection -g NoGroup",
    "consumerStatus -g NoGroup",
    "consumer -g NoGroup",
    "getConsumerConfig -g NoGroup",
    "producerConnection -g NoGroup -t NoTopic",
    "statsAll -t NoTopic",
    "printMsg -t NoTopic",
    "printMsgByQueue -t NoTopic -a broker-a -i 0",
    "printMsgByQueue -t EmptyTopic -a broker-a -i 9",
    "printMsgByQueue -t EmptyTopic -a no-broker -i 0",
    "consumeMessage -t NoTopic",
    "tail NoTopic",
    f"trace {ABSENT_ID}",
    f"queryMsgByUniqueKey -t EmptyTopic -i {ABSENT_ID}",
    "queryMsgByKey -t EmptyTopic -k no-key",
    "queryMsgByOffset -t EmptyTopic -b broker-a -i 0 -o 0",
    f"queryMsgTraceById -i {ABSENT_ID}",
    "queryCq -t EmptyTopic -q 0 -i 0 -b BROKER",
    "message export - -t NoTopic",
    "message copy -t NoTopic --to-topic OtherTopic",
    "dlq show -g NoGroup",
    f"dlq show -g EmptyGroup --id {ABSENT_ID}",
    "dlq resend -g NoGroup --all",
    f"dlq resend -g EmptyGroup --id {ABSENT_ID}",
    "dlq export - -g NoGroup",
    "offset export - -g NoGroup",
    "offset export - -t NoTopic",
    "clusterList -c NoCluster",
    "store inspect FOLDER/store -t Nothing",
    "store inspect FOLDER/store --at 5",
    "store inspect FOLDER/nothing",
    "store dump FOLDER/store -t Nothing",
    "bench consume -t NoTopic -d 0.2",
    "context show nothing",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, standalone: Standalone) -> Path:
    found = tmp_path_factory.mktemp("empty")
    written(found / "store")
    make_topic(standalone, "EmptyTopic")
    make_topic(standalone, "OtherTopic")
    return found


@pytest.fixture
def mq(cluster: Mq, standalone: Standalone) -> Mq:
    made = cluster("updateSubGroup", "-b", standalone.broker.address, "-g", "EmptyGroup")
    assert made.status == Status.DONE, made.err
    return cluster


def words_of(line: str, folder: Path, standalone: Standalone) -> list[str]:
    line = line.replace("FOLDER", str(folder)).replace("BROKER", standalone.broker.address)
    return line.split()


@pytest.mark.parametrize("line", EMPTY)
def test_nothing_in_what_there_is_is_no_failure(
    line: str, mq: Mq, folder: Path, standalone: Standalone
) -> None:
    done = mq(*words_of(line, folder, standalone))
    told = [one for one in done.err.splitlines() if "it may not know all of them yet" not in one]
    assert (done.status, told) == (Status.DONE, [])


@pytest.mark.parametrize("line", ABSENT)
def test_what_is_named_and_not_there_is_not_found(
    line: str, mq: Mq, folder: Path, standalone: Standalone
) -> None:
    done = mq(*words_of(line, folder, standalone))
    assert done.status == Status.NOT_FOUND, done.err
    assert done.err.startswith(f"mq {' '.join(line.split()[:1])}")
    assert done.out == ""


def test_the_dead_letters_of_a_group_without_any_are_an_empty_file(
    mq: Mq, folder: Path, standalone: Standalone
) -> None:
    file = folder / "none.jsonl"
    assert mq("dlq", "export", str(file), "-g", "EmptyGroup").status == Status.DONE
    assert file.read_bytes() == b""
    listed = mq("dlq", "show", "-g", "EmptyGroup", "-o", "json")
    assert json.loads(listed.out)["data"] == []
