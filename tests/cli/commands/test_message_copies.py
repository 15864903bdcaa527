import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from mq.client.machine.random_ids import random_bytes
from mq.daemons.standalone import Standalone
from mq.protocol.message import Message
from tests.cli.commands.transfers import (
    bodies,
    exported,
    how_it_goes_on,
    interrupted,
    numbered,
    some_read,
)
from tests.cli.pairs import make_topic, put, running_pair
from tests.cli.support import Mq


@pytest.fixture(scope="module")
def other() -> Iterator[Standalone]:
    """A second cluster."""
    with running_pair({"brokerName": "broker-b"}) as pair:
        yield pair


def test_a_topic_is_copied_to_another_cluster(
    cluster: Mq, standalone: Standalone, other: Standalone
) -> None:
    make_topic(standalone, "There", 2)
    make_topic(other, "There", 2)
    for queue_id in (0, 1):
        put(standalone, numbered("There", 70), queue_id)
    there = Mq(
        Path(cluster.variables["MQ_CONFIG_DIR"]), {"NAMESRV_ADDR": other.name_server_address}
    )
    copied = cluster(
        *("message", "copy", "-t", "There", "--to-namesrv", other.name_server_address),
        *("--map", "0=broker-b:1", "--map", "broker-a:1=0", "-o", "json"),
    )
    assert copied.status == 0, copied.err
    assert [(row["queueId"], row["messages"]) for row in copied.json["data"]] == [(0, 70), (1, 70)]
    for queue_id in (0, 1):
        there_ids = [line["messageId"] for line in exported(there, "There", "-i", str(queue_id))]
        here_ids = [
            line["messageId"] for line in exported(cluster, "There", "-i", str(1 - queue_id))
        ]
        assert there_ids == here_ids


LARGE = 5 * 1024 * 1024  # bytes: more than brokers accept by default


def test_a_copy_takes_what_its_brokers_take_and_says_what_the_target_does_not(
    other: Standalone, tmp_path: Path
) -> None:
    state = tmp_path / "copy.state"
    with running_pair({"maxMessageSize": str(3 * LARGE)}) as pair:
        make_topic(pair, "Large", 1)
        make_topic(other, "Large", 1)
        large = random_bytes(LARGE)  # not compressible
        put(pair, [Message("Large", body) for body in (b"a", large, b"z")], max_body=LARGE)
        mq = Mq(tmp_path / "config", {"NAMESRV_ADDR": pair.name_server_address})
        assert mq("message", "copy", "Large", "Here", "--create").status == 0
        large_one = exported(mq, "Here")[1]
        assert base64.b64decode(large_one["body"]) == large
        found = json.loads(mq("queryMsgByUniqueKey", "Here", large_one["messageId"], "-ojson").out)
        assert mq("queryMsgById", found["data"][0]["offsetId"], "-s", "true").status == 0
        target = ("--to-namesrv", other.name_server_address)
        words = ("message", "copy", "Large", *target, "--resume", str(state))
        refused = mq(*words)
        assert refused.status == 1
        assert refused.err.startswith(
            f"mq message copy: broker-a:0: {other.broker.address}: MESSAGE_ILLEGAL: a body of "
        )
        assert "; to have it there, raise maxMessageSize at broker-b\n" in refused.err
        raised = ("-b", other.broker.address, "-k", "maxMessageSize", "-v", str(2 * LARGE))
        assert mq("updateBrokerConfig", *raised).status == 0
        assert mq(*words).status == 0
    there = exported(Mq(tmp_path / "config"), "Large", "-n", other.name_server_address)
    assert [line["body"] for line in (there[0], there[2])] == ["a", "z"]
    assert base64.b64decode(there[1]["body"]) == large


def test_a_dry_run_of_a_copy_sends_nothing(cluster: Mq, standalone: Standalone) -> None:
    make_topic(standalone, "DryCopy")
    make_topic(standalone, "DryCopyTo")
    put(standalone, numbered("DryCopy", 3))
    shown = cluster("message", "copy", "-t", "DryCopy", "--to-topic", "DryCopyTo", "--dry-run")
    assert shown.status == 0, shown.err
    assert "DryCopyTo" in shown.out
    assert bodies(cluster, "DryCopyTo") == []


def test_a_dry_run_of_a_copy_to_another_cluster_shows_that_it_is_one(
    cluster: Mq, standalone: Standalone, other: Standalone
) -> None:
    make_topic(standalone, "DryThere")
    make_topic(other, "DryThere")
    put(standalone, numbered("DryThere", 3))
    command = ["message", "copy", "-t", "DryThere", "--to-namesrv", other.name_server_address]
    shown = cluster(*command, "--dry-run")
    assert shown.status == 0, shown.err
    assert f"to {other.broker.address}" in shown.out
    assert shown.out.endswith("dry run: nothing was changed\n")


def test_a_copy_that_was_cut_goes_on(cluster: Mq, standalone: Standalone, tmp_path: Path) -> None:
    make_topic(standalone, "CutCopy", 2)
    make_topic(standalone, "CutCopyTo", 2)
    for queue_id in (0, 1):
        put(standalone, numbered("CutCopy", 300), queue_id)
    state = tmp_path / "copy.json"
    command = ["message", "copy", "-t", "CutCopy", "--to-topic", "CutCopyTo"]
    command += ["--resume", str(state), "-n", standalone.name_server_address]
    cut = interrupted(some_read(standalone), *command, "--rate", "200")
    assert cut.returncode == 130
    assert len(bodies(cluster, "CutCopyTo")) < 600
    resumed = cluster(*how_it_goes_on(cut))
    assert resumed.status == 0, resumed.err
    for queue_id in (0, 1):
        found = bodies(cluster, "CutCopyTo", "-i", str(queue_id))
        assert sorted(set(map(int, found))) == list(range(300))
        assert len(found) <= 300 + 32
    assert not state.exists()
