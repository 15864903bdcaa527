import asyncio
from pathlib import Path

import pytest

from mq.daemons.broker.app import Broker
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.store_config import BrokerRole, FlushDiskType
from mq.daemons.config import ConfigError, NotUpdatable
from mq.daemons.host_addresses import parse_name_servers
from mq.daemons.properties import read_properties


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    monkeypatch.delenv("ROCKETMQ_HOME", raising=False)


def load(tmp_path: Path, text: str, **overrides: str) -> BrokerSettings:
    path = tmp_path / "broker.conf"
    path.write_text(text)
    return BrokerSettings.load(path, overrides)


def test_the_file_of_a_java_broker_is_read(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        "brokerClusterName = DefaultCluster\nbrokerName = broker-a\nbrokerId = 0\n"
        "deleteWhen = 04\nfileReservedTime = 48\nbrokerRole = SYNC_MASTER\n"
        "flushDiskType = SYNC_FLUSH\nlistenPort=20911\nstorePathRootDir=/data/store\n"
        "brokerIP1=10.0.0.1\nisEnableBatchPush=true\n",
    )
    assert settings.broker.broker_name == "broker-a"
    assert settings.store.file_reserved_time == 48
    assert settings.store.broker_role is BrokerRole.SYNC_MASTER
    assert settings.store.flush_disk_type is FlushDiskType.SYNC_FLUSH
    assert settings.store.commit_log_path == Path("/data/store/commitlog")
    assert settings.store.ha_listen_port == 20912
    assert settings.fast_port == 20909
    assert settings.store.is_enable_batch_push


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    settings = load(tmp_path, "namesrvAddr=a:1\n", namesrvAddr="b:2;c:3")
    assert settings.name_servers() == ["b:2", "c:3"]


def test_the_environment_names_the_name_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "ns:9876")
    assert BrokerSettings.load().name_servers() == ["ns:9876"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("listenPort=ten", "listenPort=ten: expected a whole number"),
        ("listenPort=99999999999", "listenPort=99999999999: does not fit in 32 bits"),
        ("listenPort=70000", "listenPort=70000: expected 0 or 3 to 65535"),
        ("aclEnable=yes", "aclEnable=yes: expected true or false"),
        ("brokerRole=BOSS", "brokerRole=BOSS: expected one of ASYNC_MASTER, SYNC_MASTER, SLAVE"),
        ("brokerRole=SLAVE", "a slave's brokerId must be above 0"),
        ("haMasterAddress=nowhere", "haMasterAddress=nowhere: .nowhere. is not host:port"),
        ("brokerClusterName=a.b", "brokerClusterName=a.b: .* legal name of topics"),
        ("brokerName=../x", "brokerName=../x: must be a name"),
        ("namesrvAddr=nowhere", 'nowhere is not host:port; write for example "127.0.0.1:9876;'),
        ("maxMessageSize=0", "maxMessageSize=0: must be at least 1"),
        ("maxTransferBytesOnBulkPull=8388609", "must be at most 8388608"),
        ("deleteWhen=25", "deleteWhen=25: expected hours such as 04;16"),
        ("brokerPermission=7", r"brokerPermission=7: expected 2 \(write\), 4"),
        ("enableDLegerCommitLog=true", "has no DLedger"),
        ("a=\\u00zz", r"line 1: \\u00zz is not a Unicode escape"),
    ],
)
def test_a_bad_setting_is_refused_by_name(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        load(tmp_path, text)


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.conf: No such file or directory"):
        BrokerSettings.load(tmp_path / "none.conf")


def test_a_masters_id_is_always_zero_and_a_slave_keeps_its_own(tmp_path: Path) -> None:
    assert load(tmp_path, "brokerId=5").broker.broker_id == 0
    assert load(tmp_path, "brokerId=5\nbrokerRole=SLAVE").broker.broker_id == 5


@pytest.mark.parametrize(
    ("text", "listens", "told"),
    [
        ("", "127.0.0.1", "127.0.0.1"),
        ("brokerIP1=127.0.0.1", "127.0.0.1", "127.0.0.1"),
        ("brokerIP1=10.9.8.7", "0.0.0.0", "10.9.8.7"),
        ("bindAddress=10.9.8.7", "10.9.8.7", "10.9.8.7"),
        ("bindAddress=0.0.0.0\nbrokerIP1=mq.example", "0.0.0.0", "mq.example"),
    ],
)
def test_without_access_control_only_a_named_address_opens_the_broker_to_others(
    tmp_path: Path, text: str, listens: str, told: str
) -> None:
    settings = load(tmp_path, text)
    assert (settings.listen_host, settings.broker.broker_ip1) == (listens, told)
    assert settings.broker.broker_ip2 == told


def test_an_open_broker_without_access_control_says_so_loudly(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    load(tmp_path, "brokerIP1=10.9.8.7")
    assert "ACCESS CONTROL IS OFF and the broker listens on 0.0.0.0" in caplog.text


def test_access_control_opens_the_broker(tmp_path: Path) -> None:
    assert load(tmp_path, "aclEnable=true").listen_host == "0.0.0.0"


def test_print_lists_every_setting_and_important_only_those_that_java_marks() -> None:
    settings = BrokerSettings.load(None, {"brokerName": "b"})
    lines = settings.lines()
    assert lines[:2] == ["rocketmqHome=", "namesrvAddr="]
    assert "sendThreadPoolQueueCapacity=10000" in lines
    assert "haMasterAddress=" in lines
    assert "autoCreateTopicEnable=true" in lines
    important = [line.partition("=")[0] for line in settings.lines(important=True)]
    assert important == [
        *("namesrvAddr", "brokerIP1", "brokerName", "brokerClusterName", "brokerId"),
        *("autoCreateTopicEnable", "autoCreateSubscriptionGroup", "msgTraceTopicName"),
        *("traceTopicEnable", "rejectTransactionMessage", "fetchNamesrvAddrByAddressServer"),
        *("transactionTimeOut", "transactionCheckMax", "transactionCheckInterval", "aclEnable"),
        *("storePathRootDir", "storePathCommitLog", "storePathDLedgerCommitLog"),
        *("flushIntervalCommitLog", "commitIntervalCommitLog", "flushCommitLogTimed"),
        *("deleteWhen", "fileReservedTime", "maxTransferBytesOnMessageInMemory"),
        *("maxTransferCountOnMessageInMemory", "maxTransferBytesOnMessageInDisk"),
        *("maxTransferCountOnMessageInDisk", "accessMessageInMemoryMaxRatio"),
        *("messageIndexEnable", "messageIndexSafe", "haMasterAddress", "brokerRole"),
        *("flushDiskType", "cleanFileForciblyEnable", "transientStorePoolEnable"),
    ]


def test_the_answer_to_get_config_reads_back_and_hides_secrets(tmp_path: Path) -> None:
    settings = load(tmp_path, "brokerName=a\\\\b".replace("\\", "") + "\nmine=x\nsecretKey=abc\n")
    answer = read_properties(settings.text())
    assert answer["mine"] == "x"
    assert answer["secretKey"] == "******"
    assert answer["brokerId"] == "0"
    assert "haMasterAddress" not in answer
    assert "abc" not in settings.text()


def test_an_update_changes_tells_and_saves(tmp_path: Path) -> None:
    settings = load(tmp_path, "# keep\nfileReservedTime=48\n")
    told: list[frozenset[str]] = []
    settings.on_change.append(told.append)
    before = settings.version
    settings.update({"fileReservedTime": "24", "longPollingEnable": "true"})
    assert settings.store.file_reserved_time == 24
    assert told == [frozenset({"fileReservedTime"})]
    assert settings.version[1] == before[1] + 1
    saved = (tmp_path / "broker.conf").read_text()
    assert saved == "# keep\nfileReservedTime=24\nlongPollingEnable=true\n"


@pytest.mark.parametrize(
    ("name", "value", "error", "reason"),
    [
        ("storePathRootDir", "/tmp", NotUpdatable, "storePathRootDir cannot be changed while"),
        ("listenPort", "1", NotUpdatable, "listenPort cannot be changed while"),
        ("noSuchThing", "1", ConfigError, "noSuchThing is not a setting of this daemon"),
        ("fileReservedTime", "x", ConfigError, "fileReservedTime=x: expected a whole number"),
        ("namesrvAddr", "x", ConfigError, "x is not host:port"),
        ("deleteWhen", "04", NotUpdatable, "deleteWhen cannot be changed while"),
    ],
)
def test_a_refused_update_changes_nothing(
    tmp_path: Path, name: str, value: str, error: type[Exception], reason: str
) -> None:
    settings = load(tmp_path, "configBlackList=deleteWhen\n")
    text, version = settings.text(), settings.version
    with pytest.raises(error, match=reason):
        settings.update({"fileReservedTime": "24", name: value})
    assert (settings.text(), settings.version) == (text, version)
    assert (tmp_path / "broker.conf").read_text() == "configBlackList=deleteWhen\n"


def test_settings_nothing_reads_are_named() -> None:
    settings = BrokerSettings.load(None, {"sendMessageThreadPoolNums": "64", "brokerName": "b"})
    assert settings.broker.without_effect() == ["sendMessageThreadPoolNums"]


def test_name_servers_are_told_apart_from_blanks() -> None:
    assert parse_name_servers(" a:1 ; ;b:2;") == ["a:1", "b:2"]
    assert parse_name_servers("") == []


def test_an_address_for_others_that_is_none_is_refused_by_name(tmp_path: Path) -> None:
    async def start() -> None:
        settings = BrokerSettings.load(
            None,
            {"storePathRootDir": str(tmp_path), "listenPort": "0", "brokerIP1": "[::1]",
             "bindAddress": "127.0.0.1"},
        )  # fmt: skip
        async with Broker(settings):
            pass

    with pytest.raises(ConfigError, match=r"brokerIP1=\[::1\]: expected an address"):
        asyncio.run(start())
