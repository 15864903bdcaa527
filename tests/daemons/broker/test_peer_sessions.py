"""The sessions for a broker's own requests to others."""

import logging
from pathlib import Path

import pytest

from mq.client.transport.buffers import SocketBuffers
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.peer_sessions import PeerSessions


def key_file(folder: Path, secret: str) -> Path:
    path = folder / "key.yml"
    path.write_text(f"accessKey: the-broker\nsecretKey: {secret}\n")
    return path


def settings_with(path: Path, **more: str) -> BrokerSettings:
    return BrokerSettings.load(None, {"namesrvAclFile": str(path), **more})


def test_each_session_has_the_key_the_tls_and_the_buffers_of_the_settings(tmp_path: Path) -> None:
    buffers = {"clientSocketSndBufSize": "70000", "clientSocketRcvBufSize": "90000"}
    settings = settings_with(key_file(tmp_path, "secret-one"), useTLS="true", **buffers)
    sessions = PeerSessions(settings)
    session = sessions.session("127.0.0.1:9876", timeout=3.5, dead_after=2.0)
    assert session.credentials == sessions.key
    assert session.credentials is not None and session.credentials.secret_key == "secret-one"
    assert session.buffers == SocketBuffers(70000, 90000)
    assert session.options.tls is not None
    assert (session.options.timeout, session.dead_after) == (3.5, 2.0)


def test_a_key_that_cannot_be_reloaded_keeps_the_old_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = key_file(tmp_path, "secret-one")
    sessions = PeerSessions(settings_with(path))
    key_file(tmp_path, "secret-two")
    assert sessions.reload_key("name servers")
    path.write_text("accessKey: the-broker\n")
    with caplog.at_level(logging.ERROR):
        assert not sessions.reload_key("name servers")
    assert "keeping the old key for requests to name servers" in caplog.text
    session = sessions.session("127.0.0.1:9876")
    assert session.credentials is not None and session.credentials.secret_key == "secret-two"


def test_a_connection_attempt_has_a_time_limit(tmp_path: Path) -> None:
    path = key_file(tmp_path, "secret-one")
    brief = PeerSessions(settings_with(path, connectTimeoutMillis="400"))
    assert (brief.connect_timeout(1.0), brief.connect_timeout(0.1)) == (0.4, 0.1)
