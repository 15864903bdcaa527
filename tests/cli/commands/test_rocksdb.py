import json
from pathlib import Path

import pytest

from mq.daemons.standalone import Standalone
from tests.cli.support import Mq

rocksdict = pytest.importorskip("rocksdict")

TOPIC = {"topicName": "T", "perm": 6}
VERSION = {"counter": 3, "stateVersion": 0, "timestamp": 1700000000000}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A store's config directory as a 5.x broker leaves it."""
    folder = tmp_path / "rocks"
    kinds: dict[str, dict[str, object]] = {
        "topics": {"T": TOPIC, "A": {"topicName": "A"}},
        "subscriptionGroups": {"G": {"groupName": "G"}},
        "consumerOffsets": {"T@G": {"offsetTable": {0: 7, 1: 8}}},
    }
    for kind, entries in kinds.items():
        (folder / kind).mkdir(parents=True)
        database = rocksdict.Rdict(str(folder / kind), rocksdict.Options(raw_mode=True))
        for name, value in entries.items():
            database[name.encode()] = json.dumps(value).encode()
        if kind != "consumerOffsets":
            family = database.create_column_family(
                "kvDataVersion", rocksdict.Options(raw_mode=True)
            )
            family[b"kvDataVersionKey"] = json.dumps(VERSION).encode()
            family.close()
        database.close()
    return folder


def test_the_entries_of_a_database_are_listed(mq: Mq, config: Path) -> None:
    listed = mq("exportMetadataInRocksDB", "-p", str(config), "-t", "topics")
    assert listed.out == (
        '1, Key: A, Value: {"topicName": "A"}\n'
        '2, Key: T, Value: {"topicName": "T", "perm": 6}\n'
    )  # fmt: skip
    whole = mq("exportMetadataInRocksDB", "-p", str(config), "-t", "TOPICS", "-j", "true")
    assert json.loads(whole.out) == {"topicConfigTable": {"A": {"topicName": "A"}, "T": TOPIC}}
    rows = mq("exportMetadataInRocksDB", "-p", str(config), "-t", "topics", "-o", "json")
    assert [row["name"] for row in rows.json["data"]] == ["A", "T"]


def test_a_database_is_turned_into_json(mq: Mq, config: Path) -> None:
    local = "Use [local mode] load rocksdb to print or export file \n"
    shown = mq("rocksDBConfigToJson", "-p", str(config), "-t", "topics").out
    assert shown.startswith(local)
    assert json.loads(shown.removeprefix(local)) == {
        "dataVersion": VERSION,
        "topicConfigTable": {"A": {"topicName": "A"}, "T": TOPIC},
    }
    offsets = mq("rocksDBConfigToJson", "-p", str(config), "-t", "consumerOffsets").out
    assert offsets == (
        f'{local}{{\n\t"offsetTable":{{\n\t\t"T@G":{{\n\t\t\t0:7,\n\t\t\t1:8\n\t\t}}\n\t}}\n}}\n'
    )
    lines = mq("rocksDBConfigToJson", "-p", str(config), "-t", "consumerOffsets", "-j", "false")
    assert lines.out == f"{local}type: offsetTable1, Key: T@G, Value: {{0=7, 1=8}}\n"


def test_the_json_goes_to_a_file_and_the_old_one_is_kept(
    mq: Mq, config: Path, tmp_path: Path
) -> None:
    file = tmp_path / "topics.json"
    file.write_text("old")
    command = ("rocksDBConfigToJson", "-p", str(config), "-t", "topics", "-e", str(file))
    assert mq(*command, "--dry-run").status == 0
    assert file.read_text() == "old"
    done = mq(*command)
    assert done.out == "Use [local mode] load rocksdb to print or export file \n"
    assert json.loads(file.read_text())["dataVersion"] == VERSION
    assert (tmp_path / "topics.json.bak").read_text() == "old"


def test_brokers_are_asked_to_write_their_json(cluster: Mq, standalone: Standalone) -> None:
    done = cluster("rocksDBConfigToJson", "-b", standalone.broker.address)
    assert done.out == (
        "Use [rpc mode] call broker to export to json file \nbroker export done."
    )  # fmt: skip
    done = cluster(
        *("rocksDBConfigToJson", "-c", "DefaultCluster", "-t", "topics;consumerOffsets"),
        *("-n", standalone.name_server_address, "-o", "json"),
    )
    address = standalone.broker.address
    assert done.json["data"] == [{"brokerAddr": address, "type": "topics;consumerOffsets"}]


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("exportMetadataInRocksDB", "-p", "CONFIG", "-t", "offsets"), 64),
        (("exportMetadataInRocksDB", "-p", "/nowhere", "-t", "topics"), 66),
        (("exportMetadataInRocksDB", "-p", "CONFIG/topics", "-t", "topics"), 66),
        (("rocksDBConfigToJson",), 64),
        (("rocksDBConfigToJson", "-p", "CONFIG"), 64),
        (("rocksDBConfigToJson", "-p", "CONFIG", "-t", "topics;consumerOffsets"), 64),
        (("rocksDBConfigToJson", "-n", "127.0.0.1:1"), 64),
        (("rocksDBConfigToJson", "-c", "C", "-t", "nonsense"), 64),
    ],
)
def test_what_does_not_fit_is_refused(
    arguments: tuple[str, ...], status: int, mq: Mq, config: Path
) -> None:
    finished = mq(*(word.replace("CONFIG", str(config)) for word in arguments))
    assert (finished.status, finished.out) == (status, "")
    assert not (config / "topics" / "topics").exists()


def test_a_damaged_database_is_bad_data(mq: Mq, config: Path) -> None:
    for file in (config / "topics").glob("MANIFEST-*"):
        file.write_bytes(b"\0" * 40)
    finished = mq("exportMetadataInRocksDB", "-p", str(config), "-t", "topics")
    assert (finished.status, finished.out) == (65, "")
