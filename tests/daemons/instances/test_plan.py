"""Which brokers a file describes, and the settings of each."""

from pathlib import Path

import pytest

from mq.daemons.config import ConfigError
from mq.daemons.instances.plan import check_apart, plan


@pytest.fixture
def written(tmp_path: Path) -> Path:
    return tmp_path / "broker.conf"


def test_a_file_for_one_broker_is_no_plan(written: Path) -> None:
    written.write_text("brokerName=broker-a\nlistenPort=20911\n")
    assert plan(written, {}, None) == []
    assert plan(written, {}, 1) == []
    assert plan(None, {}, None) == []


def test_each_broker_has_its_own_name_port_and_folder(written: Path) -> None:
    written.write_text(
        "brokerName=broker-a\nlistenPort=20911\nmetricsPort=9100\nstorePathRootDir=/data/store\n"
    )
    brokers = {one.name: one.settings(written) for one in plan(written, {}, 3)}
    check_apart(brokers)
    told = [
        (
            settings.broker.broker_name,
            settings.server.listen_port,
            settings.fast_port,
            settings.store.ha_listen_port,
            settings.operation.metrics_port,
            str(settings.store.commit_log_path),
        )
        for settings in brokers.values()
    ]
    assert told == [
        ("broker-a", 20911, 20909, 20912, 9100, "/data/store/commitlog"),
        ("broker-a-2", 20921, 20919, 20922, 9110, "/data/store-broker-a-2/commitlog"),
        ("broker-a-3", 20931, 20929, 20932, 9120, "/data/store-broker-a-3/commitlog"),
    ]


def test_a_section_overrides_common_and_derived_settings(written: Path) -> None:
    written.write_text(
        "brokerClusterName=C\nfileReservedTime=24\nstorePathCommitLog=/logs\n\n"
        "[broker-a]\n[broker-b]\nlistenPort=30911\nfileReservedTime=48\nstorePathCommitLog=/fast\n"
    )
    first, second = (one.settings(written) for one in plan(written, {}, None))
    assert (first.broker.broker_name, second.broker.broker_name) == ("broker-a", "broker-b")
    assert (first.server.listen_port, second.server.listen_port) == (10911, 30911)
    assert (first.store.file_reserved_time, second.store.file_reserved_time) == (24, 48)
    assert first.store.store_path_commit_log == "/logs"
    assert second.store.store_path_commit_log == "/fast"
    assert second.broker.broker_cluster_name == "C"


def test_the_number_may_be_in_the_file_with_sections_for_some_brokers(written: Path) -> None:
    written.write_text("instances=3\nbrokerName=x\n[x-3]\nfileReservedTime=1\n")
    planned = plan(written, {}, None)
    assert [one.name for one in planned] == ["x", "x-2", "x-3"]
    assert planned[2].properties["fileReservedTime"] == "1"
    assert len(plan(written, {}, 4)) == 4


def test_the_command_line_overrides_the_file_except_individual_settings(
    written: Path,
) -> None:
    written.write_text("[a]\nfileReservedTime=1\nlistenPort=11000\n[b]\n")
    overrides = {"fileReservedTime": "9", "listenPort": "12000", "namesrvAddr": "h:9876"}
    first, second = (one.properties for one in plan(written, overrides, None))
    assert (first["fileReservedTime"], second["fileReservedTime"]) == ("9", "9")
    assert (first["listenPort"], second["listenPort"]) == ("11000", "12010")
    assert first["namesrvAddr"] == second["namesrvAddr"] == "h:9876"


@pytest.mark.parametrize(
    ("text", "count", "expected"),
    [
        ("", 65, "instances=65: expected 1 to 64"),
        ("instances=0\n[a]\n", None, "instances=0: expected 1 to 64"),
        ("instances=two\n", None, "instances=two: expected a whole number"),
        ("listenPort=x\n", 2, "listenPort=x: expected a whole number"),
        ("brokerName=a\n[b]\n", 2, "[b] is not one of the brokers of instances=2: a, a-2"),
        (
            "[a]\nbrokerName=b\n",
            None,
            "[a] brokerName=b: the section must have the name of the broker",
        ),
        ("[a]\n[a]\n", None, "section [a] occurs twice"),
    ],
)
def test_an_invalid_plan_is_reported_in_one_line(
    written: Path, text: str, count: int | None, expected: str
) -> None:
    written.write_text(text)
    with pytest.raises(ConfigError) as raised:
        plan(written, {}, count)
    assert expected in str(raised.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[a]\n[b]\nlistenPort=10911\n", "[b] listenPort=10911: listenPort of [a] is the same"),
        ("[a]\n[b]\nlistenPort=10913\n", "[b] listenPort - 2=10911: listenPort of [a] is the same"),
        ("[a]\nmetricsPort=10921\n[b]\n", "[b] listenPort=10921: metricsPort of [a] is the same"),
        (
            "storePathRootDir=/s\n[a]\n[b]\nstorePathRootDir=/s\n",
            "[b] storePathRootDir=/s: storePathRootDir of [a] is the same",
        ),
        (
            "storePathRootDir=/s\n[a]\n[b]\nstorePathRootDir=/x/..//s/\n",
            "[b] storePathRootDir=/s: storePathRootDir of [a] is the same",
        ),
    ],
)
def test_two_brokers_with_the_same_port_or_folder_are_refused(
    written: Path, text: str, expected: str
) -> None:
    written.write_text(text)
    with pytest.raises(ConfigError) as raised:
        check_apart({one.name: one.settings(written) for one in plan(written, {}, None)})
    assert expected in str(raised.value)


def test_a_changed_setting_goes_to_the_section_of_its_broker(written: Path) -> None:
    written.write_text("# ours\nbrokerName=x\nfileReservedTime=72\n[x]\nstatus=1\n\n# the second\n")
    first, second = (one.settings(written) for one in plan(written, {}, 2))
    first.update({"fileReservedTime": "1"})
    second.update({"fileReservedTime": "2"})
    second.update({"fileReservedTime": "3"})
    assert written.read_text() == (
        "# ours\nbrokerName=x\nfileReservedTime=72\n[x]\nstatus=1\n\n# the second\n"
        "fileReservedTime=1\n\n[x-2]\nfileReservedTime=3\n"
    )
    kept = [one.settings(written).store.file_reserved_time for one in plan(written, {}, 2)]
    assert kept == [1, 3]
