"""The effects of datagrams on routes: very few."""

import asyncio
import socket
from pathlib import Path

import pytest

from mq.daemons.beacon import Beacon
from mq.daemons.namesrv.app import NameServer
from mq.daemons.namesrv.beacons import BeaconListener
from mq.daemons.namesrv.config import NamesrvSettings
from mq.daemons.namesrv.registration import Registration
from mq.daemons.namesrv.routes import Routes
from mq.protocol.bodies import DataVersion, TopicConfig
from tests.interop.ports import free_port

ADDRESS = "10.0.0.1:10911"
START = "00112233445566aa"
DATAGRAM = (
    b'{"cluster":"c","broker":"a","id":0,"address":"10.0.0.1:10911","start":"00112233445566aa"}'
)


class Closing:
    """A connection that only records its end."""

    closed = False

    def close(self) -> None:
        self.closed = True


class Table:
    """Routes with one broker and a clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.routes = Routes(lambda: self.now)
        self.connection = Closing()

    def register(self, start: str | None = START, interval: float = 0.0) -> None:
        told = Registration(
            cluster="c",
            broker_name="a",
            address=ADDRESS,
            broker_id=0,
            ha_address="",
            data_version=DataVersion(timestamp=1, counter=1),
            topics={"T": TopicConfig(topic_name="T")},
            beacon_source=None if start is None else (start, "10.0.0.1"),
            beacon_interval=interval,
        )
        self.routes.register(told, self.connection)


def test_the_datagram_is_as_documented() -> None:
    beacon = Beacon("c", "a", 0, ADDRESS, START)
    assert beacon.encode() == DATAGRAM
    assert Beacon.decode(DATAGRAM) == beacon
    assert Beacon.decode(DATAGRAM[:-1] + b',"later":1}') == beacon


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"\xff" * 20, b"[]", b"null", b"{}", b'{"cluster":1}', DATAGRAM[:-3], b" " * 5000),
        *(DATAGRAM.replace(b'"id":0', b'"id":"0"'), DATAGRAM.replace(b'"c"', b"{}")),
    ],
)
def test_what_is_not_a_beacon_is_counted_and_ignored(data: bytes) -> None:
    table = Table()
    table.register()
    listener = BeaconListener(table.routes, 3.0)
    listener.take(data, "10.0.0.1")
    assert (listener.taken, listener.ignored) == (0, 1)
    assert table.routes.live[ADDRESS].last_beacon is None


def test_a_broker_that_sends_beacons_seldom_is_not_missed_between_them() -> None:
    table = Table()
    table.register(interval=5.0)
    assert table.routes.beacon(ADDRESS, START, "10.0.0.1")
    table.now += 14.0
    assert table.routes.expire_beacons(3.0) == []
    table.now += 2.0
    assert table.routes.expire_beacons(3.0) == [ADDRESS]


def test_a_broker_without_beacons_is_removed_and_its_connection_closed() -> None:
    table = Table()
    table.register()
    table.now += 100  # none has arrived, so none is missing
    assert table.routes.expire_beacons(3.0) == []
    assert table.routes.beacon(ADDRESS, START, "10.0.0.1")
    table.now += 2.9
    assert table.routes.expire_beacons(3.0) == []
    table.now += 0.2
    assert table.routes.expire_beacons(3.0) == [ADDRESS]
    assert table.routes.route("T") is None
    assert table.connection.closed


@pytest.mark.parametrize(
    ("address", "start", "source"),
    [
        ("10.0.0.2:10911", START, "10.0.0.1"),
        (ADDRESS, "ffffffffffffffff", "10.0.0.1"),
        (ADDRESS, START, "10.0.0.2"),
    ],
    ids=["not registered", "another start", "from another host"],
)
def test_a_beacon_that_does_not_fit_a_registration_does_nothing(
    address: str, start: str, source: str
) -> None:
    table = Table()
    table.register()
    assert not table.routes.beacon(address, start, source)
    assert list(table.routes.live) == [ADDRESS]
    table.now += 1000
    assert table.routes.expire_beacons(3.0) == []


def test_no_beacons_are_expected_of_a_broker_without_a_start_time() -> None:
    table = Table()
    table.register(start=None)
    for start in ("", START):
        assert not table.routes.beacon(ADDRESS, start, "10.0.0.1")


def test_beacons_do_not_put_off_the_expiry_of_a_broker_that_does_not_register() -> None:
    table = Table()
    table.register()
    for _ in range(130):
        table.now += 1
        assert table.routes.beacon(ADDRESS, START, "10.0.0.1")
    assert table.routes.expire(120.0) == [ADDRESS]


def test_registering_again_keeps_the_expectation_and_a_new_start_drops_it() -> None:
    table = Table()
    table.register()
    table.routes.beacon(ADDRESS, START, "10.0.0.1")
    table.register()
    assert table.routes.live[ADDRESS].last_beacon == 1000.0
    table.register("another start...")
    assert table.routes.live[ADDRESS].last_beacon is None


def test_a_pause_of_the_name_server_itself_expires_no_broker() -> None:
    table = Table()
    table.register()
    table.routes.beacon(ADDRESS, START, "10.0.0.1")
    table.now += 60
    table.routes.forgive(60)
    assert table.routes.expire_beacons(3.0) == []


def test_a_taken_udp_port_is_warned_about_and_the_name_server_serves(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
            port = free_port()
            taken.bind(("127.0.0.1", port))
            overrides = {"listenPort": str(port), "kvConfigPath": str(tmp_path / "kv.json")}
            async with NameServer(NamesrvSettings.load(None, overrides)) as server:
                assert server.port == port

    asyncio.run(main())
    assert "cannot receive beacons of brokers: UDP port" in caplog.text


def test_a_name_server_stops_without_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        overrides = {"listenPort": "0", "kvConfigPath": str(tmp_path / "kv.json")}
        async with NameServer(NamesrvSettings.load(None, overrides)):
            await asyncio.sleep(0)  # its tasks begin

    asyncio.run(main())
    assert "failed" not in caplog.text


def test_a_flood_of_datagrams_registers_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        overrides = {"listenPort": "0", "kvConfigPath": str(tmp_path / "kv.json")}
        async with NameServer(NamesrvSettings.load(None, overrides)) as server:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                for _ in range(2000):
                    sender.sendto(DATAGRAM, ("127.0.0.1", server.port))
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.close()
            await writer.wait_closed()
            assert not server.routes.live and not server.routes.clusters

    asyncio.run(main())
