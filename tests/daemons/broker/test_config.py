import asyncio
from pathlib import Path

import pytest

from mq.daemons.broker.app import Broker
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.store_config import BrokerRole, FlushDiskType
from mq.daemons.config import MAX_UNKNOWN_SETTINGS, ConfigError, NotUpdatable
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
        ("brokerClusterName=" + "c" * 109, "longer than 108 bytes; topics of this broker"),
        ("brokerName=../x", "brokerName=../x: must be a name"),
        ("namesrvAddr=nowhere", 'nowhere is not host:port; write for example "127.0.0.1:9876;'),
        ("maxMessageSize=0", "maxMessageSize=0: must be at least 1"),
        ("maxTransferBytesOnBulkPull=8388609", "must be at most 8388608"),
        ("deleteWhen=25", "deleteWhen=25: expected hours such as 04;16"),
        ("brokerPermission=7", r"brokerPermission=7: expected 2 \(write\), 4"),
        ("enableDLegerCommitLog=true", "does not support DLedger"),
        ("storeType=defaultRocksDB", "storeType=defaultRocksDB: .* rocksDBConfigToJson"),
        ("timerRocksDBEnable=true", "timerRocksDBEnable=true: .* Let Java deliver them"),
        ("rocksdbCQDoubleWriteEnable=true", "remove rocksdbCQDoubleWriteEnable"),
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


def test_an_open_broker_without_access_control_warns(
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
    settings = load(tmp_path, "brokerName=ab\nmine=x\nsecretKey=abc\nmy.pwd=d\n")
    answer = read_properties(settings.text())
    assert answer["mine"] == "x"
    assert (answer["secretKey"], answer["my.pwd"]) == ("******", "******")
    assert answer["brokerId"] == "0"
    assert "haMasterAddress" not in answer
    assert "abc" not in settings.text()


def test_an_update_changes_notifies_and_saves(tmp_path: Path) -> None:
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
        ("storePathRootDir", "/tmp", NotUpdatable, "storePathRootDir cannot be changed by"),
        ("listenPort", "1", NotUpdatable, "listenPort cannot be changed by"),
        ("aclEnable", "false", NotUpdatable, "aclEnable cannot be changed by"),
        ("tls.server.keyPath", "/k", NotUpdatable, "tls.server.keyPath cannot be changed by"),
        ("no such", "1", ConfigError, "'no such' is not a setting of this daemon"),
        ("noSuchThing", "x" * 4097, ConfigError, "'noSuchThing' is not a setting of this daemon"),
        ("flushDiskType", "SOON", ConfigError, "flushDiskType=SOON: expected one of"),
        ("fileReservedTime", "x", ConfigError, "fileReservedTime=x: expected a whole number"),
        ("namesrvAddr", "x", ConfigError, "x is not host:port"),
        ("deleteWhen", "04", NotUpdatable, "deleteWhen cannot be changed by"),
        ("mappedFileSizeCommitLog", "0", ConfigError, "mappedFileSizeCommitLog=0"),
        ("messageDelayLevel", "1s 2x", ConfigError, "messageDelayLevel: 2x is not a number"),
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


def test_settings_that_need_a_restart_are_saved_for_the_next_start(tmp_path: Path) -> None:
    settings = load(tmp_path, "fileReservedTime=48\n")
    update = settings.update(
        {
            "flushDiskType": "SYNC_FLUSH",
            "sendMessageThreadPoolNums": "64",
            "flushDiskTyp": "x",
            "fileReservedTime": "24",
        }
    )
    assert update.changed == {"fileReservedTime"}
    assert update.notes == (
        "flushDiskType is saved and takes effect after a restart",
        "sendMessageThreadPoolNums has no effect in this daemon",
        "flushDiskTyp is not a setting of this daemon; did you mean flushDiskType?",
    )
    assert settings.store.flush_disk_type is FlushDiskType.ASYNC_FLUSH
    again = BrokerSettings.load(tmp_path / "broker.conf")
    assert again.store.flush_disk_type is FlushDiskType.SYNC_FLUSH
    assert again.broker.send_message_thread_pool_nums == 64
    assert again.store.file_reserved_time == 24


def test_updates_for_the_next_start_must_fit_those_before(tmp_path: Path) -> None:
    settings = load(tmp_path, "")
    settings.update({"enableSlaveActingMaster": "true"})
    with pytest.raises(ConfigError, match="brokerNotActiveTimeoutMillis=10000: must be more than"):
        settings.update({"brokerHeartbeatInterval": "20000"})
    assert BrokerSettings.load(tmp_path / "broker.conf").broker.broker_heartbeat_interval == 1000


def test_a_setting_that_needs_a_restart_is_refused_without_a_file() -> None:
    with pytest.raises(NotUpdatable, match="no configuration file to keep it in; start with -c"):
        BrokerSettings.load(None).update({"flushDiskType": "SYNC_FLUSH"})


def test_an_update_that_cannot_be_saved_fails_if_only_the_next_start_would_see_it(
    tmp_path: Path,
) -> None:
    settings = load(tmp_path, "")
    (tmp_path / "broker.conf").unlink()
    (tmp_path / "broker.conf").mkdir()
    with pytest.raises(ConfigError, match=r"flushDiskType: .* could not be written"):
        settings.update({"flushDiskType": "SYNC_FLUSH"})


def test_requests_cannot_add_unknown_settings_without_end(tmp_path: Path) -> None:
    settings = load(tmp_path, "")
    with pytest.raises(ConfigError, match="keeps no more than 256 unknown ones"):
        settings.update({f"mine{number}": "1" for number in range(MAX_UNKNOWN_SETTINGS + 1)})
    settings.update({f"mine{number}": "1" for number in range(MAX_UNKNOWN_SETTINGS)})
    with pytest.raises(ConfigError, match="keeps no more than 256 unknown ones"):
        settings.update({"mine": "1"})
    settings.update({"mine0": "2"})


@pytest.mark.parametrize(
    "name", ["site1@broker", "prod.eu", "north east", 'say "x"', "生产", "a#b"]
)
def test_names_that_java_accepts_are_accepted_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    settings = BrokerSettings.load(None, {"brokerName": name, "brokerClusterName": name})
    assert (settings.broker.broker_name, settings.broker.broker_cluster_name) == (name, name)
    assert f"brokerName={name}: clients refuse topics named after it" in caplog.text
    assert f"brokerClusterName={name}: clients refuse topics named after it" in caplog.text


@pytest.mark.parametrize("name", ["../x", "a\\\\b", "a\tb", " "])
def test_names_that_no_folder_may_have_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="must be a name without /"):
        load(tmp_path, "", brokerName=name)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("/nowhere/x # d", "a comment needs a line of its own"),
        ("~/store", "~ is not expanded; write the whole path"),
        (r"D:\rocketmq\store", "write a path of this system, with / between folders"),
    ],
)
def test_a_folder_that_was_not_meant_is_not_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=why):
        load(tmp_path, f"storePathRootDir={value}\n")
    assert [path.name for path in tmp_path.iterdir()] == ["broker.conf"]


def test_a_folder_with_an_odd_name_is_used_if_it_exists(tmp_path: Path) -> None:
    folder = tmp_path / "x # d"
    folder.mkdir()
    settings = load(tmp_path, f"storePathRootDir={folder}\n")
    assert settings.store.store_path_root_dir == str(folder)


def test_a_message_size_above_the_limit_of_frames_gives_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    BrokerSettings.load(None, {"maxMessageSize": str(32 * 1024 * 1024)})
    assert "maxMessageSize=33554432 has no effect above 16711680" in caplog.text


def test_a_misspelt_setting_gives_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    load(tmp_path, "fileReservedTimes=48\nmyTool=1\n")
    assert [line for line in caplog.messages if "is not a setting" in line] == [
        "fileReservedTimes is not a setting of this daemon; did you mean fileReservedTime?"
    ]


def test_unused_settings_are_named() -> None:
    settings = BrokerSettings.load(None, {"sendMessageThreadPoolNums": "64", "brokerName": "b"})
    assert settings.broker.without_effect() == ["sendMessageThreadPoolNums"]


def test_blanks_between_name_servers_are_ignored() -> None:
    assert parse_name_servers(" a:1 ; ;b:2;") == ["a:1", "b:2"]
    assert parse_name_servers("") == []
    assert parse_name_servers("a:1,b:2") == ["a:1", "b:2"]
    assert parse_name_servers("[::1]:9876") == ["[::1]:9876"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("http://10.0.0.1:8080/rocketmq/nsaddr", "set fetchNamesrvAddrByAddressServer=true"),
        ("10.0.0.1:9876 10.0.0.2:9876", "is not host:port"),
        ("10.0.0.1", "is not host:port"),
    ],
)
def test_invalid_addresses_of_name_servers_are_refused(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        parse_name_servers(text)


def test_an_invalid_advertised_address_is_refused_by_name(tmp_path: Path) -> None:
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
