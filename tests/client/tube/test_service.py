"""What clients share: connections, names, numbers."""

import asyncio
import ssl

import pytest
import trustme

from mq.client.errors import ClientError, ConnectError, RequestTimeout
from mq.client.tube.consumer import TubeConsumer
from mq.client.tube.errors import TubeError
from mq.client.tube.service import TubeService
from mq.protocol.tube.codes import Code, Method
from mq.protocol.tube.messages import CloseRequestC2M
from mq.protocol.tube.strings import Address
from tests.client.tube.consumers import GROUP
from tests.client.tube.scripted import HANG, HANG_UP, Master, opened
from tests.client.tube.virtual_time import run_fast

CLOSE = Method.CONSUMER_CLOSE_C2M
BODY = CloseRequestC2M(clientId="c", groupName="g").SerializeToString()


async def call(service: TubeService, master: Master) -> bytes:
    address = Address("127.0.0.1", master.port)
    return await service.call(address, CLOSE, BODY, 15.0, connect_timeout=3.0)


def test_a_service_that_does_not_run_takes_no_client() -> None:
    async def scenario() -> None:
        master = Master()
        async with opened(master):
            service = TubeService()
            consumer = TubeConsumer(master.address, GROUP, ["orders"], service=service)
            with pytest.raises(ClientError, match="is not running"):
                await consumer.start()
            with pytest.raises(ClientError, match="is not running"):
                await call(service, master)
            await service.open()
            await service.open()
            await consumer.start()
            await service.close()
            await service.close()
            with pytest.raises(ClientError, match="create another"):
                await service.open()
            assert len(master.asked(CLOSE)) == 1  # its clients were closed with it
            with pytest.raises(TubeError) as caught:
                await consumer.get_message()
            assert caught.value.code == Code.CLIENT_STOPPED

    run_fast(scenario())


def test_a_client_that_cannot_be_closed_does_not_keep_the_others() -> None:
    class Broken:
        async def close(self) -> None:
            raise RuntimeError("mine")

    async def scenario() -> None:
        master = Master()
        async with opened(master):
            service = TubeService()
            await service.open()
            service.add(Broken())
            consumer = TubeConsumer(master.address, GROUP, ["orders"], service=service)
            await consumer.start()
            with pytest.raises(RuntimeError, match="mine"):
                await service.close()
            assert len(master.asked(CLOSE)) == 1 and not service.is_running
            await asyncio.sleep(0.1)
            assert not master.connections

    run_fast(scenario())


def test_clients_are_numbered_and_share_the_connections() -> None:
    async def scenario() -> None:
        master = Master()
        async with opened(master), TubeService() as service:
            consumers = [
                TubeConsumer(master.address, GROUP, ["orders"], service=service) for _ in range(2)
            ]
            for consumer in consumers:
                await consumer.start()
            numbers = [consumer.client_id.split("-")[3] for consumer in consumers]
            assert numbers == ["1", "2"]
            assert master.connected == 1
            await consumers[0].close()
            assert await call(service, master)  # the service keeps working

    run_fast(scenario())


def test_a_connection_on_which_nothing_was_asked_for_three_minutes_is_closed() -> None:
    async def scenario() -> None:
        master = Master()
        async with opened(master), TubeService() as service:
            await call(service, master)
            await asyncio.sleep(150)
            await call(service, master)
            await asyncio.sleep(170)
            await call(service, master)
            assert master.connected == 1
            await asyncio.sleep(210)
            assert not master.connections
            await call(service, master)
            assert master.connected == 2

    run_fast(scenario())


def test_a_closed_connection_is_replaced() -> None:
    async def scenario() -> None:
        master = Master()
        async with opened(master), TubeService() as service:
            master.plays(CLOSE, HANG_UP)
            with pytest.raises(ConnectError):
                await call(service, master)
            master.plays(CLOSE, HANG)
            with pytest.raises(RequestTimeout):
                await call(service, master)
            master.plays(CLOSE)
            assert await call(service, master)

    run_fast(scenario())


def test_names_are_looked_up_in_the_period_of_the_service() -> None:
    async def scenario() -> None:
        times: list[float] = []

        async def resolve(name: str) -> str | None:
            times.append(asyncio.get_running_loop().time())
            if len(times) == 2:
                raise RuntimeError("the look-up itself fails")
            return "127.0.0.1"

        async with TubeService(resolve=resolve) as service:
            await service.names.watch(["tube"])
            await asyncio.sleep(100)
        assert times == [0.0, 30.0, 60.0, 90.0]

    run_fast(scenario())


@pytest.mark.parametrize("certified", ["master.example", "127.0.0.1"])
def test_a_certificate_is_of_the_name_that_one_asked_for(certified: str) -> None:
    authority = trustme.CA()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(certified).configure_cert(server)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)

    async def resolve(name: str) -> str | None:
        return "127.0.0.1"

    async def scenario() -> None:
        master = Master()
        async with opened(master, ssl=server), TubeService(resolve=resolve) as service:
            await service.names.watch(["master.example"])
            for host in ("master.example", "127.0.0.1"):
                address = Address(host, master.port)
                asked = service.call(address, CLOSE, BODY, 15.0, connect_timeout=3.0, tls=trusting)
                if host == certified:
                    assert await asked
                else:
                    with pytest.raises(ConnectError, match=r"[Ii]P address|[Hh]ostname"):
                        await asked

    asyncio.run(scenario())
