"""The KV configuration in the log, periodically (KVConfigManager.printAllPeriodically)."""

import asyncio
import logging
from pathlib import Path

import pytest

from mq.daemons.namesrv import kv
from mq.daemons.namesrv.app import NameServer
from mq.daemons.namesrv.config import NamesrvSettings
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.headers.kv import PutKVConfigRequestHeader
from tests.daemons.peer import Peer


def test_all_values_are_logged_periodically_except_secrets_and_too_many(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = asyncio.Event()
    log_all = kv.KvConfig.log_all

    def noted(self: kv.KvConfig) -> None:
        log_all(self)
        if caplog.text.count("KV config: 3 values") >= 2:
            rounds.set()

    async def main() -> None:
        settings = NamesrvSettings.load(
            None,
            {"listenPort": "0", "bindAddress": "127.0.0.1", "kvConfigPath": f"{tmp_path}/kv.json"},
        )
        async with NameServer(settings) as server, Peer(server.port) as peer:
            for key, value in (("a", "1"), ("secretKey", "hidden"), ("z", "3")):
                header = PutKVConfigRequestHeader(namespace="N", key=key, value=value)
                reply = await peer.ask(RequestCode.PUT_KV_CONFIG, header)
                assert reply.code == ResponseCode.SUCCESS
            await asyncio.wait_for(rounds.wait(), 30)

    monkeypatch.setattr(kv, "FIRST_LOG_SECONDS", 0.0)
    monkeypatch.setattr(kv, "LOG_SECONDS", 0.01)
    monkeypatch.setattr(kv, "MOST_LOGGED", 2)
    monkeypatch.setattr(kv.KvConfig, "log_all", noted)
    caplog.set_level(logging.INFO)
    asyncio.run(main())
    assert "KV config: N a = 1" in caplog.text
    assert "KV config: N secretKey = ******" in caplog.text
    assert "KV config: and 1 more" in caplog.text
    assert "hidden" not in caplog.text
