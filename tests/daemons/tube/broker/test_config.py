"""The settings of a TubeMQ broker."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from mq.daemons.config import ConfigError
from mq.daemons.tube.broker.config import BrokerSettings
from mq.daemons.tube.broker.store.errors import FlushMode
from mq.daemons.tube.master.config import MasterSettings

SAMPLE = """[broker]
; unique id of broker server
brokerId=1
hostName=127.0.0.1
port=8123
webPort=8081
masterAddressList=127.0.0.1:8715,other:8716
primaryPath=var/stage/metadata_1
maxSegmentSize=1073741824
maxIndexSegmentSize=22020096
transferSize= 524288
loadMessageStoresInParallel=true
consumerRegTimeoutMs=35000

[tlsSetting]
tlsEnable=false
tlsPort=8999

[audit]
auditEnable=false
"""


def test_the_originals_sample_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "broker.ini"
    path.write_text(SAMPLE)
    broker = BrokerSettings.load(path).broker
    assert (broker.number, broker.transfer_size) == (1, 524288)
    assert broker.consumer_reg_timeout_ms == 35000
    assert [str(one) for one in broker.masters()] == ["127.0.0.1:8715", "other:8716"]
    assert broker.tls_port == 8999
    assert broker.flush_mode is FlushMode.os


def test_without_an_id_it_is_made_of_the_address() -> None:
    settings = BrokerSettings.load(None, {"hostName": "10.0.0.1", "confModAuthToken": "x-9"})
    assert settings.broker.number == 0x0A000001


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", "70000"),
        ("flushMode", "never"),
        ("primaryPath", "/"),
        ("masterAddressList", "a:b"),
        ("topicList", "demo:0"),
        ("hostName", "a b"),
        ("visitMasterAuth", "true"),
        ("maxSegmentSize", "1"),
    ],
)
def test_what_cannot_work_is_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        BrokerSettings.load(None, {name: value})


@pytest.mark.parametrize("token", ["", "abc", "ASDFGHJKL"])
def test_administrators_need_a_secret_off_loopback(token: str) -> None:
    given = {"hostName": "10.0.0.1", "confModAuthToken": token}
    with pytest.raises(ConfigError, match="confModAuthToken"):
        BrokerSettings.load(None, given)
    assert BrokerSettings.load(None, {**given, "webPort": "-1"}).broker.web_port == -1


def test_an_open_broker_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        BrokerSettings.load(None, {"hostName": "10.0.0.1", "confModAuthToken": "x-9"})
    assert "any client may send and consume" in caplog.text


def test_two_way_tls_needs_to_know_who_signs_clients(tmp_path: Path) -> None:
    path = tmp_path / "broker.ini"
    path.write_text(SAMPLE.replace("tlsEnable=false", "tlsEnable=true\ntlsTwoWayAuthEnable=true"))
    with pytest.raises(ConfigError, match="trustCertPath"):
        BrokerSettings.load(path)
    settings = BrokerSettings.load(path, {"tls.server.trustCertPath": "trusted.pem"})
    assert (settings.tls.auth_client, settings.tls.need_client_auth) == (True, "require")


@pytest.mark.parametrize("kind", [BrokerSettings, MasterSettings])
def test_certificates_may_be_named_in_a_file_of_their_own(
    tmp_path: Path, kind: type[BrokerSettings | MasterSettings]
) -> None:
    path = tmp_path / "tls.properties"
    path.write_text("tls.server.trustCertPath=/etc/mq/ca.pem\ntls.server.certPath=/etc/mq/mq.pem\n")
    two_way = {"tls.server.authClient": "true", "tls.server.need.client.auth": "require"}
    with pytest.raises(ConfigError, match="trustCertPath"):
        kind.load(None, {"tls.config.file": "", **two_way})
    tls = kind.load(None, {"tls.config.file": str(path), **two_way}).tls
    assert (tls.trust_cert_path, tls.cert_path) == ("/etc/mq/ca.pem", "/etc/mq/mq.pem")
