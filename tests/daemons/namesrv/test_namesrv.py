"""A name server in this process over real sockets: settings, ports, malformed requests."""

from pathlib import Path

import pytest

from mq.daemons.namesrv.app import NameServer
from mq.daemons.namesrv.config import NamesrvSettings
from mq.daemons.properties import read_properties
from mq.protocol.codes import RequestCode, ResponseCode
from tests import answered
from tests.daemons.namesrv.servers import header, serve, topics
from tests.daemons.peer import Peer


@answered.by_name_server(RequestCode.UPDATE_NAMESRV_CONFIG, RequestCode.GET_NAMESRV_CONFIG)
def test_settings_are_shown_and_changed_by_the_allow_list(tmp_path: Path) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        reply = await peer.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"orderMessageEnable=true\n")
        assert reply.code == ResponseCode.SUCCESS
        reply = await peer.ask(RequestCode.GET_NAMESRV_CONFIG)
        shown = read_properties(bytes(reply.body).decode())
        assert shown["orderMessageEnable"] == "true"
        assert shown["kvConfigPath"] == str(tmp_path / "kvConfig.json")
        assert (tmp_path / "namesrv.conf").read_text() == "# mine\norderMessageEnable=true\n"
        for body, code, remark in (
            (b"kvConfigPath=/tmp/x", ResponseCode.NO_PERMISSION, "kvConfigPath cannot be changed"),
            (b"listenPort=1", ResponseCode.NO_PERMISSION, "listenPort cannot be changed"),
            (b"nonsense=1", ResponseCode.SUCCESS, "nonsense is not a setting"),
            (b"notifyMinBrokerIdChanged=true", ResponseCode.SUCCESS, "after a restart"),
            (b"a/b=1", ResponseCode.SYSTEM_ERROR, "'a/b' is not a setting"),
            (b"brokerExpiredTimeout=0", ResponseCode.SYSTEM_ERROR, "must be at least 1"),
            (b"orderMessageEnable=\xff", ResponseCode.SYSTEM_ERROR, "utf-8"),
            (b"a=b\n" * 70_000, ResponseCode.SYSTEM_ERROR, "280000 bytes, over 262144"),
        ):
            reply = await peer.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=body)
            assert reply.code == code
            assert remark in (reply.remark or "")

    serve(tmp_path, script)


def test_an_unknown_code_and_a_bad_header_are_answered_and_the_server_continues(
    tmp_path: Path,
) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        reply = await peer.ask(99999)
        assert (reply.code, reply.remark) == (
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            "request type 99999 not supported",
        )
        reply = await peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC)
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert "topic is missing" in (reply.remark or "")
        reply = await peer.ask(RequestCode.REGISTER_BROKER, header(), b"[")
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert await topics(peer) == set()

    serve(tmp_path, script)


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    async def script(server: NameServer, peer: Peer) -> None:
        settings = NamesrvSettings.load(
            None,
            {"listenPort": str(server.port), "kvConfigPath": str(tmp_path / "other.json")},
        )
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{server.port}"):
            async with NameServer(settings):
                pass

    serve(tmp_path, script)
