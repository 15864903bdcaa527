"""Exports have the plain text and the files of the Java mqadmin."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import Mq
from tests.interop import peers
from tests.interop.jvm import require_java
from tests.interop.tools import BROKER, Cluster, JavaTool, warm_tool

pytestmark = pytest.mark.java

# Fields that differ between calls, and the tool's own version.
MOVING = {"exportTime", "tps", "totalTps", "rocketmqVersion"}


def content(path: Path) -> Any:
    """The document without variable fields; a null counts as an absent field."""

    def cleaned(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: cleaned(v) for k, v in value.items() if k not in MOVING and v is not None}
        return value

    return cleaned(json.loads(path.read_text()))


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("exportMetadata", "-c", "DefaultCluster"), "metadata"),
        (("exportMetadata", "-c", "DefaultCluster", "-s"), "metadata"),
        (("exportMetadata", "-c", "DefaultCluster", "-t"), "topic"),
        (("exportMetadata", "-c", "DefaultCluster", "-g"), "subscriptionGroup"),
        (("exportMetadata", "-b", "BROKER", "-t"), "topic"),
        (("exportMetadata", "-b", "BROKER", "-g"), "subscriptionGroup"),
        (("exportConfigs", "-c", "DefaultCluster"), "configs"),
        (("exportMetrics", "-c", "DefaultCluster"), "metrics"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_an_export_has_the_content_of_java_s(
    both_tools: Cluster, arguments: tuple[str, ...], name: str, tmp_path: Path
) -> None:
    words = [word.replace("BROKER", both_tools.broker) for word in arguments]
    # The tool of 4.9.7 fails on brokers of release 5, which lack settings that it needs.
    tool = both_tools.java_5 if both_tools.release == "5.5.0" else both_tools.java
    theirs = ""
    for _ in range(60):  # exportMetrics fails until the broker has taken measurements
        theirs = theirs or tool(*words, "-f", f"{tmp_path}/java", "-n", both_tools.namesrv)
        if not theirs:
            time.sleep(0.5)
    ours = both_tools.ours(*words, "-f", f"{tmp_path}/mq")
    assert ours.err == ""
    assert ours.status == 0
    assert ours.out == theirs.replace(f"{tmp_path}/java", f"{tmp_path}/mq")
    mine, other = tmp_path / "mq" / f"{name}.json", tmp_path / "java" / f"{name}.json"
    assert content(mine) == content(other)


def test_exporting_pop_records_prints_what_java_prints(both_tools: Cluster) -> None:
    for where in (("-c", "DefaultCluster"), ("-b", both_tools.broker)):
        if both_tools.release == "4.9.7":
            refused = both_tools.ours("exportPopRecord", *where)
            assert (refused.status, refused.out) == (69, "")
            assert "the broker is older than RocketMQ 5" in refused.err
            continue
        both_tools.assert_same("exportPopRecord", *where, tool=both_tools.java_5)
        # In Java's 5.5.0, `-d false` does nothing, and reports that.
        dry = both_tools.java_5("exportPopRecord", *where, "-d", "false", "-n", both_tools.namesrv)
        assert both_tools.ours("exportPopRecord", *where, "-d", "true").out == dry


@pytest.fixture(scope="module")
def rocks(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The config directory of a stopped 5.5.0 broker that keeps its settings in RocksDB."""
    require_java()
    tmp = tmp_path_factory.mktemp("rocks")
    mq = Mq(tmp / "config")
    settings = {"brokerName": BROKER, "storeType": "defaultRocksDB"}
    with (
        peers.JavaNameServer("5.5.0", tmp) as namesrv,
        peers.JavaBroker("5.5.0", tmp, namesrv.address, settings) as broker,
    ):
        java = warm_tool("5.5.0")
        where = ("-b", broker.address, "-n", namesrv.address)
        assert mq("updateTopic", *where, "-t", "RocksTopic").status == 0
        assert mq("updateSubGroup", *where, "-g", "RocksGroup").status == 0
        for arguments in (where[:2], ("-c", "DefaultCluster", *where[2:], "-t", "topics")):
            told = mq("rocksDBConfigToJson", *arguments)
            assert (told.status, told.out) == (0, java("rocksDBConfigToJson", *arguments))
        broker.stop()
        yield broker.store / "config", java, mq


READS = [
    *(("rocksDBConfigToJson", "-t", kind) for kind in ("topics", "subscriptionGroups")),
    ("rocksDBConfigToJson", "-t", "topics", "-j", "false"),
    ("rocksDBConfigToJson", "-t", "consumerOffsets"),
    *(("exportMetadataInRocksDB", "-t", kind) for kind in ("topics", "subscriptionGroups")),
    ("exportMetadataInRocksDB", "-t", "topics", "-j", "true"),
]


@pytest.mark.parametrize("arguments", READS, ids=" ".join)
def test_settings_kept_in_rocksdb_are_printed_as_by_java(
    rocks: tuple[Path, JavaTool, Mq], arguments: tuple[str, ...]
) -> None:
    folder, java, mq = rocks
    shown = mq(*arguments, "-p", str(folder))
    assert (shown.status, shown.err) == (0, "")
    assert shown.out == java(*arguments, "-p", str(folder))
    if "consumerOffsets" not in arguments:
        assert re.search("RocksTopic|RocksGroup", shown.out)
