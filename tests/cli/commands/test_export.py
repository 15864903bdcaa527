import json
from pathlib import Path

import pytest

from mq.client.admin import Admin
from mq.client.transport.blocking import BlockingSession, run
from mq.daemons.standalone import Standalone
from tests.cli.members import member
from tests.cli.support import Mq


@pytest.fixture
def filled(cluster: Mq) -> Mq:
    for topic in ("Exported", "%RETRY%ExportedGroup"):
        cluster("updateTopic", "-c", "DefaultCluster", "-t", topic, "-r", "3", "-w", "5")
    cluster("updateSubGroup", "-c", "DefaultCluster", "-g", "ExportedGroup", "-r", "2")
    return cluster


def test_the_metadata_of_a_cluster_goes_to_a_file(filled: Mq, tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "er"
    done = filled("exportMetadata", "-c", "DefaultCluster", "-f", str(folder))
    assert (done.status, done.out) == (0, f"export {folder}/metadata.json success\n")
    found = json.loads((folder / "metadata.json").read_text())
    assert found.keys() == {"topicConfigTable", "subscriptionGroupTable", "exportTime"}
    assert found["topicConfigTable"]["Exported"]["writeQueueNums"] == 5
    assert found["subscriptionGroupTable"]["ExportedGroup"]["retryMaxTimes"] == 2
    assert "TBW102" not in found["topicConfigTable"]
    assert "%RETRY%ExportedGroup" not in found["topicConfigTable"]
    assert "TOOLS_CONSUMER" not in found["subscriptionGroupTable"]


def test_a_part_of_it_goes_to_a_file_of_its_own(
    filled: Mq, standalone: Standalone, tmp_path: Path
) -> None:
    for where, end in (("-b", ""), ("-c", "\n")):
        target = standalone.broker.address if where == "-b" else "DefaultCluster"
        for option, name in (("-t", "topic"), ("-g", "subscriptionGroup")):
            folder = tmp_path / f"{where}{name}"
            done = filled("exportMetadata", where, target, option, "-s", "-f", str(folder))
            assert done.out == f"export {folder}/{name}.json success{end}"
            found = json.loads((folder / f"{name}.json").read_text())
            if option == "-t":
                assert "%RETRY%ExportedGroup" in found["topicConfigTable"]
                assert "subscriptionGroupTable" not in found
            else:
                assert "ExportedGroup" in found["subscriptionGroupTable"]
                assert "topicConfigTable" not in found


def test_an_export_can_be_printed(filled: Mq, tmp_path: Path) -> None:
    printed = filled("exportConfigs", "-c", "DefaultCluster", "-f", "-")
    assert json.loads(printed.out)["clusterScale"] == {
        "namesrvSize": 1,
        "masterBrokerSize": 1,
        "slaveBrokerSize": 0,
    }
    document = filled("exportConfigs", "-c", "DefaultCluster", "-f", "-", "-o", "json").json["data"]
    assert document["brokerConfigs"]["broker-a"]["brokerRole"] == "ASYNC_MASTER"


def test_the_default_folder_is_below_the_state_directory(filled: Mq) -> None:
    folder = f"{filled.variables['MQ_STATE_DIR']}/export"
    done = filled("exportConfigs", "-c", "DefaultCluster", "-o", "json").json["data"]
    path = Path(f"{folder}/configs.json")
    assert done == [{"file": str(path), "size": path.stat().st_size}]


def test_the_metrics_of_a_cluster_go_to_a_file(
    filled: Mq, standalone: Standalone, tmp_path: Path
) -> None:
    with member(standalone, "ExportedGroup", "Exported"):
        with BlockingSession(standalone.name_server_address) as session:
            address = standalone.broker.address
            assert run(Admin(session).consumer_ids(address, "ExportedGroup"))
        done = filled("exportMetrics", "-c", "DefaultCluster", "-f", str(tmp_path))
    assert done.out == f"export {tmp_path}/metrics.json success"
    found = json.loads((tmp_path / "metrics.json").read_text())
    report = found["evaluateReport"]["broker-a"]
    assert report["runtimeVersion"]["rocketmqVersion"] == "V4_9_8"
    assert report["runtimeVersion"]["clientInfo"] == ["PYTHON%V4_9_8"]
    assert report["runtimeQuota"]["topicSize"] >= 1
    assert set(found["totalData"]["totalTps"]) == {
        "totalNormalInTps",
        "totalNormalOutTps",
        "totalTransInTps",
        "totalScheduleInTps",
    }


@pytest.mark.parametrize("command", ["exportMetadata", "exportConfigs", "exportMetrics"])
def test_an_export_that_cannot_be_written_leaves_nothing(
    command: str, filled: Mq, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    failed = filled(command, "-c", "DefaultCluster", "-f", str(tmp_path / "file"))
    assert (failed.status, failed.out) == (73, "")
    assert "hint" in failed.err or "cannot write" in failed.err
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("file")] == ["file"]
    assert filled(command, "-c", "Nowhere", "-f", str(tmp_path)).status == 66


def test_a_dry_run_writes_no_file(filled: Mq, tmp_path: Path) -> None:
    folder = tmp_path / "dry"
    shown = filled("exportConfigs", "-c", "DefaultCluster", "-f", str(folder), "--dry-run")
    assert shown.status == 0
    assert "configs.json" in shown.out
    assert not folder.exists()


def test_pop_records_are_exported_unless_dry(filled: Mq, standalone: Standalone) -> None:
    address = standalone.broker.address
    line = f"Export broker records, brokerName=broker-a, brokerAddr={address}, dryRun="
    assert filled("exportPopRecord", "-b", address).out == f"{line}false\n"
    assert filled("exportPopRecord", "-c", "DefaultCluster", "-d", "true").out == f"{line}true\n"
    assert filled("exportPopRecord").status == 64
