"""The settings of a filter server: names and defaults of 4.2.0, and the files of brokers."""

from pathlib import Path

import pytest

from mq.daemons.config import ConfigError
from mq.daemons.filtersrv.config import FiltersrvSettings


def test_names_and_defaults_are_those_of_java_but_for_uploads() -> None:
    """FiltersrvConfig of 4.2.0."""
    lines = dict(line.split("=", 1) for line in FiltersrvSettings().lines())
    assert {
        "connectWhichBroker": "127.0.0.1:10911",
        "compressMsgBodyOverHowmuch": "8192",
        "zipCompressLevel": "5",
        "clientUploadFilterClassEnable": "false",  # true in Java
        "filterClassRepertoryUrl": "http://fsrep.tbsite.net/filterclass",
        "fsServerAsyncSemaphoreValue": "2048",
        "fsServerCallbackExecutorThreads": "64",
        "fsServerWorkerThreads": "64",
    }.items() <= lines.items()
    assert {"rocketmqHome", "namesrvAddr", "filterServerIP"} <= lines.keys()


def test_a_brokers_file_names_the_broker_and_gives_no_ports(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(
        "brokerName=a\nlistenPort=20911\nbrokerIP1=127.0.0.5\nmetricsPort=9100\n"
        "filterMaxClasses=3\n"
    )
    settings = FiltersrvSettings.load(path)
    assert settings.filtersrv.connect_which_broker == "127.0.0.1:20911"
    assert settings.filtersrv.filter_server_ip == "127.0.0.5"
    assert settings.sandbox.filter_max_classes == 3
    assert (settings.server.listen_port, settings.operation.metrics_port) == (0, -1)
    assert settings.listen_host == "127.0.0.1"
    path.write_text("listenPort=20911\nconnectWhichBroker=127.0.0.1:5\n")
    assert FiltersrvSettings.load(path).filtersrv.connect_which_broker == "127.0.0.1:5"
    chosen = FiltersrvSettings.load(path, {"listenPort": "7777"})
    assert chosen.server.listen_port == 7777


def test_it_listens_where_a_broker_would() -> None:
    for settings, host in (
        ({}, "127.0.0.1"),
        ({"aclEnable": "true"}, "0.0.0.0"),
        ({"filterServerIP": "10.0.0.1"}, "0.0.0.0"),
        ({"bindAddress": "127.0.0.2", "filterServerIP": "10.0.0.1"}, "127.0.0.2"),
    ):
        assert FiltersrvSettings.load(None, settings).listen_host == host


def test_a_reachable_filter_server_without_access_control_warns(
    caplog: pytest.LogCaptureFixture,
) -> None:
    given = {"filterServerIP": "10.0.0.1", "clientUploadFilterClassEnable": "true"}
    FiltersrvSettings.load(None, given)
    assert "ACCESS CONTROL IS OFF" in caplog.text
    assert "may read every topic and upload classes" in caplog.text


@pytest.mark.parametrize(
    "name, value",
    [
        ("connectWhichBroker", "nowhere"),
        ("zipCompressLevel", "10"),
        ("compressMsgBodyOverHowmuch", "0"),
        ("filterMemoryMaxBytes", "1000"),
        ("filterMessageMillis", "0"),
        ("filterHeldMaxBytes", "0"),
        ("namesrvAddr", "nowhere"),
    ],
)
def test_values_that_cannot_work_are_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        FiltersrvSettings.load(None, {name: value})
