"""Signals to a real broker process."""

import os
import signal
import time
from pathlib import Path

import orjson
import pytest

from mq.protocol.codes import RequestCode, ResponseCode
from tests.system.daemon import BrokerProcess
from tests.system.ledger import SenderProcess, audit
from tests.system.raw_peer import CREATE, PULL, SEND, TOPIC, RawPeer, request

PATIENCE = 60.0


def wait_for_line(broker: BrokerProcess, text: str) -> str:
    """The log as soon as it has a line with the text."""
    deadline = time.monotonic() + PATIENCE
    while text not in (log := broker.log):
        assert time.monotonic() < deadline, log
        time.sleep(0.01)  # its log is a file: there is no event
    return log


def pid_of(broker: BrokerProcess) -> int:
    assert broker._process is not None
    return broker._process.pid


def test_sigusr1_writes_the_state_to_the_log_and_no_secret(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "store") as broker, RawPeer(broker.address) as peer:
        assert peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, CREATE).code == ResponseCode.SUCCESS
        sent = peer.ask(RequestCode.SEND_MESSAGE_V2, SEND, b"a secret of the sender's")
        assert sent.code == ResponseCode.SUCCESS
        held = {**PULL, "queueOffset": "1", "sysFlag": "6", "suspendTimeoutMillis": "60000"}
        peer.send(request(RequestCode.PULL_MESSAGE, held))
        with RawPeer(broker.address) as other:  # a reply: the pull before it has been read
            where = {"topic": TOPIC, "queueId": "0"}
            assert other.ask(RequestCode.GET_MAX_OFFSET, where).code == ResponseCode.SUCCESS
        os.kill(pid_of(broker), signal.SIGUSR1)
        log = wait_for_line(broker, "state: end")
        assert f"queue {TOPIC} 0: 0 to 1, 1 held pulls" in log
        assert "flushes: " in log and "listener main 127.0.0.1:" in log
        assert "state: task consumer offsets: " in log
        assert "connection 127.0.0.1:" in log
        assert "a secret of the sender's" not in log
        assert broker.stop() == 0


def test_sighup_reads_files_again_and_stops_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "conf").mkdir(parents=True)
    accounts = home / "conf" / "plain_acl.yml"
    accounts.write_text(
        "accounts:\n- accessKey: operator\n  secretKey: s3cret-of-theirs\n  admin: true\n"
    )
    settings = {"aclEnable": "true", "rocketmqHome": str(home), "bindAddress": "127.0.0.1"}
    with BrokerProcess(tmp_path / "store", settings) as broker:
        accounts.write_text("accounts: [")  # broken: the previous content stays in force
        os.kill(pid_of(broker), signal.SIGHUP)
        log = wait_for_line(broker, "SIGHUP")
        wait_for_line(broker, "plain_acl.yml")
        with RawPeer(broker.address) as peer:
            reply = peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, CREATE)
            assert reply.code != ResponseCode.SUCCESS
        assert "s3cret-of-theirs" not in log
        assert broker.stop() == 0


def test_the_log_may_be_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MQ_LOG_FORMAT", "json")
    with BrokerProcess(tmp_path / "store") as broker:
        assert broker.stop() == 0
    entries = [orjson.loads(line) for line in broker.log.splitlines()]
    assert any("boot success" in entry["text"] for entry in entries)
    assert any(entry["text"] == "SIGTERM: stopping" for entry in entries)


def test_every_message_that_a_stopping_broker_stores_is_acknowledged(tmp_path: Path) -> None:
    """A sender without a reply retries: a message stored during a stop would be stored twice."""
    address_file = tmp_path / "address"
    address_file.write_text("127.0.0.1:1")
    settings = {"flushDiskType": "SYNC_FLUSH"}
    sender = SenderProcess(tmp_path, 0, address_file)
    with BrokerProcess(tmp_path / "store", settings) as broker:
        sender.start()
        for _ in range(3):
            address_file.write_text(broker.address)
            before = sender.acknowledged
            deadline = time.monotonic() + PATIENCE
            while sender.acknowledged < before + 200:
                assert time.monotonic() < deadline
                time.sleep(0.01)  # its ledger is a file: there is no event
            assert broker.stop() == 0
            broker.start()
        sender.stop()
        result = audit(tmp_path, broker.address)
        result.check()
        assert result.stored.keys() - result.acknowledged == set()
