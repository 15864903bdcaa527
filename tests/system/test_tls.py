"""TLS at both daemons, in addition to or instead of plain connections; and at the client."""

import asyncio
import ssl
from pathlib import Path

import pytest
import trustme
import uvloop

from mq.client.admin import Admin
from mq.client.errors import ClientError, ConnectError
from mq.client.producer.producer import Producer
from mq.client.transport.blocking import BlockingSession, run
from mq.client.transport.session import Session
from mq.client.transport.tls import client_context
from mq.daemons.config import ConfigError
from mq.daemons.namesrv.app import NameServer
from mq.daemons.namesrv.config import NamesrvSettings
from mq.daemons.standalone import Standalone
from mq.daemons.tls_config import TlsConfig
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.message import Message
from tests.cli.support import Mq
from tests.daemons.peer import PATIENCE, Peer

RUNNERS = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


class Certificates:
    """A certificate authority and a server certificate signed by it, as files."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.authority = trustme.CA()
        self.trusted = folder / "trusted.pem"
        self.certificate = folder / "server.pem"
        self.key = folder / "server.key"
        self.client = folder / "client.pem"
        self.authority.cert_pem.write_to_path(str(self.trusted))
        self.issue()
        self.authority.issue_cert("client").private_key_and_cert_chain_pem.write_to_path(
            str(self.client)
        )

    def issue(self) -> None:
        """Replace the server's certificate by a new one."""
        issued = self.authority.issue_cert("127.0.0.1")
        issued.cert_chain_pems[0].write_to_path(str(self.certificate))
        issued.private_key_pem.write_to_path(str(self.key))

    @property
    def server(self) -> dict[str, str]:
        return {
            "tls.server.certPath": str(self.certificate),
            "tls.server.keyPath": str(self.key),
            "tls.config.file": "",
        }

    def context(self, **more: str) -> ssl.SSLContext:
        """A client that verifies the server."""
        return client_context(
            {
                "tls.client.authServer": "true",
                "tls.client.trustCertPath": str(self.trusted),
                **{f"tls.client.{name}": value for name, value in more.items()},
            }
        )


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path / "tls")


def name_server(tmp_path: Path, properties: dict[str, str]) -> NameServer:
    return NameServer(
        NamesrvSettings.load(
            None,
            {
                "listenPort": "0",
                "bindAddress": "127.0.0.1",
                "kvConfigPath": str(tmp_path / "kv.json"),
                "configStorePath": str(tmp_path / "namesrv.properties"),
                **properties,
            },
        )
    )


async def asks(server: NameServer, tls: ssl.SSLContext | None) -> bool:
    """Whether a client gets a reply."""
    async with Session(server.address, tls=tls) as session:
        try:
            await session.invoke_name_server(Command(RequestCode.GET_BROKER_CLUSTER_INFO))
        except ConnectError:
            return False
        return True


@pytest.mark.parametrize("loop", RUNNERS)
def test_a_broker_accepts_both_kinds_of_connections_on_one_port(
    tmp_path: Path, certificates: Certificates, loop: str
) -> None:
    async def main() -> None:
        async with Standalone(
            name_server_port=0, broker_port=0, properties=certificates.server
        ) as pair:
            await pair.broker.registration.first_round.wait()
            body = bytes(range(256)) * 4000  # several records of TLS
            async with (
                Session(pair.name_server_address) as plain,
                Session(pair.broker.address, tls=certificates.context()) as secret,
                Producer(pair.name_server_address, "p", compress_over=1 << 30) as producer,
            ):
                result = await producer.send(Message("TlsTopic", body))
                queue = result.queue
                offset = int(result.offset_message_id[16:], 16)
                for session in (plain, secret):
                    found = await Admin(session).view_message(pair.broker.address, offset)
                    assert bytes(found.body) == body
                    assert found.queue_id == queue.queue_id
                replies = await asyncio.gather(
                    *(
                        secret.invoke(
                            pair.broker.address, Command(RequestCode.GET_BROKER_RUNTIME_INFO)
                        )
                        for _ in range(50)
                    )
                )
                assert {reply.code for reply in replies} == {0}

    with asyncio.Runner(loop_factory=RUNNERS[loop]) as runner:
        runner.run(main())


def test_an_enforcing_listener_closes_plain_connections(
    tmp_path: Path, certificates: Certificates
) -> None:
    async def main() -> None:
        settings = {**certificates.server, "tls.server.mode": "enforcing"}
        async with name_server(tmp_path, settings) as server:
            assert await asks(server, certificates.context())
            assert not await asks(server, None)
            async with Peer(server.port) as peer:
                peer.writer.write(b"\x00\x00\x00\x10")
                await peer.closed_by_daemon()

    asyncio.run(main())


@pytest.mark.parametrize("mode", ["permissive", "disabled"])
def test_without_a_certificate_a_handshake_is_refused_and_plain_connections_work(
    tmp_path: Path, mode: str
) -> None:
    async def main() -> None:
        settings = {"tls.server.mode": mode, "tls.config.file": ""}
        async with name_server(tmp_path, settings) as server:
            assert not await asks(server, client_context())
            assert await asks(server, None)

    asyncio.run(main())


def test_a_client_refuses_a_server_without_a_trusted_certificate(
    tmp_path: Path, certificates: Certificates
) -> None:
    async def main() -> None:
        stranger = Certificates(tmp_path / "other")
        async with name_server(tmp_path, certificates.server) as server:
            assert not await asks(server, stranger.context())
            assert await asks(server, client_context())  # as in Java: verification is not required

    asyncio.run(main())


def test_a_client_without_the_required_certificate_is_refused(
    tmp_path: Path, certificates: Certificates
) -> None:
    async def main() -> None:
        settings = {
            **certificates.server,
            "tls.server.need.client.auth": "require",
            "tls.server.authClient": "true",
            "tls.server.trustCertPath": str(certificates.trusted),
        }
        stranger = Certificates(tmp_path / "other")
        async with name_server(tmp_path, settings) as server:
            assert await asks(server, certificates.context(certPath=str(certificates.client)))
            assert not await asks(server, certificates.context())
            assert not await asks(server, certificates.context(certPath=str(stranger.client)))

    asyncio.run(main())


def test_a_new_certificate_counts_without_a_restart_and_a_broken_one_does_not(
    tmp_path: Path, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    async def shown(server: NameServer) -> bytes | None:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=client_context())
        found: bytes | None = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        await writer.wait_closed()
        return found

    async def main() -> None:
        async with name_server(tmp_path, certificates.server) as server:
            first = await shown(server)
            certificates.issue()
            async with asyncio.timeout(PATIENCE):
                # the files are checked once a second, without an event
                while await shown(server) == first:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            second = await shown(server)
            certificates.key.write_text("broken")
            server.reload()
            assert await shown(server) == second
            assert "keeping the old TLS certificate" in caplog.text

    asyncio.run(main())


@pytest.mark.parametrize(
    "data",
    [
        b"\x16",
        b"\x16\x03\x01\x00\x05hello",
        b"\x16\x03\x01\x40\x00" + b"\x00" * 16384,
        b"\x16" + b"\xff" * 5000,
    ],
)
def test_an_invalid_handshake_ends_that_connection_only(
    tmp_path: Path, certificates: Certificates, data: bytes
) -> None:
    async def main() -> None:
        async with name_server(tmp_path, certificates.server) as server:
            async with Peer(server.port) as peer:
                peer.writer.write(data)
                peer.writer.write_eof()
                await peer.closed_by_daemon()
            assert await asks(server, certificates.context())
            assert await asks(server, None)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"tls.server.mode": "enforcing"}, "needs a certificate"),
        ({"tls.server.mode": "on"}, "expected one of disabled, permissive, enforcing"),
        ({"tls.server.certPath": "/nowhere.pem"}, "tls.server.certPath=/nowhere.pem"),
        ({"tls.server.need.client.auth": "sometimes"}, "expected none, optional or require"),
        ({"tls.server.need.client.auth": "require"}, "needs tls.server.authClient"),
        ({"tls.server.authClient": "true"}, "needs tls.server.trustCertPath"),
    ],
)
def test_settings_that_cannot_work_stop_the_start(
    tmp_path: Path, settings: dict[str, str], problem: str
) -> None:
    async def main() -> None:
        async with name_server(tmp_path, {"tls.config.file": "", **settings}):
            raise AssertionError("it started")

    with pytest.raises(ConfigError, match=problem):
        asyncio.run(main())


def test_the_configuration_file_overrides_other_settings(tmp_path: Path) -> None:
    path = tmp_path / "tls.properties"
    path.write_text("tls.server.certPath=/from/file\ntls.server.mode=disabled\n")
    config = TlsConfig(config_file=str(path), cert_path="/set").complete()
    assert (config.cert_path, config.mode) == ("/from/file", "permissive")


def test_the_password_of_a_key_is_shown_nowhere(tmp_path: Path) -> None:
    settings = NamesrvSettings.load(None, {"tls.server.keyPassword": "hidden"})
    assert "tls.server.keyPassword=******" in settings.lines()
    assert "hidden" not in settings.text()


def test_a_test_certificate_is_created_on_request(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")

    async def main() -> None:
        settings = {"tls.test.mode.enable": "true", "tls.config.file": ""}
        async with name_server(tmp_path, settings) as server:
            assert await asks(server, client_context())

    asyncio.run(main())


def test_the_command_and_the_blocking_session_speak_tls(
    tmp_path: Path, certificates: Certificates
) -> None:
    async def main() -> None:
        settings = {**certificates.server, "tls.server.mode": "enforcing"}
        async with name_server(tmp_path, settings) as server:

            def ask() -> int:
                with BlockingSession(server.address, tls=certificates.context()) as session:
                    request = Command(RequestCode.GET_BROKER_CLUSTER_INFO)
                    return run(session.invoke_name_server(request)).code

            assert await asyncio.to_thread(ask) == 0
            path = tmp_path / "tls.properties"
            path.write_text(
                f"tls.client.authServer=true\ntls.client.trustCertPath={certificates.trusted}\n"
            )
            mq = Mq(tmp_path / "config", {"NAMESRV_ADDR": server.address})
            plain = await asyncio.to_thread(mq, "topicList")
            assert plain.status == 69
            secret = await asyncio.to_thread(mq, "topicList", "--tls-config", str(path))
            assert (secret.status, secret.err) == (0, "")

    asyncio.run(main())


def test_a_broker_registers_over_tls(tmp_path: Path, certificates: Certificates) -> None:
    async def main() -> None:
        settings = {**certificates.server, "tls.server.mode": "enforcing"}
        async with name_server(tmp_path, settings) as server:
            properties = {
                "namesrvAddr": server.address,
                "tls.enable": "true",
                "tls.client.authServer": "true",
                "tls.client.trustCertPath": str(certificates.trusted),
                "tls.config.file": "",
            }
            async with Standalone(name_server_port=0, broker_port=0, properties=properties) as pair:
                await pair.broker.registration.first_round.wait()
                async with Session(server.address, tls=client_context()) as session:
                    info = await Admin(session).cluster_info()
                assert list(info.broker_addr_table) == ["broker-a"]

    asyncio.run(main())


@pytest.mark.parametrize("name", ["tls.client.trustCertPath", "tls.client.certPath"])
def test_a_missing_file_of_the_client_is_named(name: str) -> None:
    with pytest.raises(ClientError, match="/nowhere"):
        client_context({"tls.client.authServer": "true", name: "/nowhere"})
