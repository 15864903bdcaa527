"""A producer and its masters."""

import socket

import pytest

from mq.client.errors import ClientError
from mq.client.tube.credentials import TubeCredentials
from mq.client.tube.errors import NotAuthenticated, StandbyMaster, TubeError
from mq.client.tube.producer import TubeProducer
from mq.client.tube.producer_options import TubeProducerOptions
from mq.protocol.tube.codes import Code
from mq.protocol.tube.signature import BrokerToken, verify
from tests.client.tube.producers import QUICK, Cluster, cluster, with_producer
from tests.daemons.tube.rpc_peers import run
from tests.waiting import until


def test_a_producer_says_who_it_is_when_it_registers_and_leaves() -> None:
    async def test() -> None:
        async with cluster() as made:
            async with TubeProducer(made.address, ["test"]) as producer:
                name = producer.client_id
                assert name.startswith("PRODUCER_127.0.0.1-")
            (registered,) = made.registered
            assert (registered.clientId, registered.hostName) == (name, "127.0.0.1")
            assert (registered.brokerCheckSum, registered.appdConfig.configId) == (-1, -2)
            assert list(registered.topicList) == ["test"]
            assert not registered.HasField("authInfo")
            assert [closed.clientId for closed in made.closed] == [name]
            assert (made.beats[0].brokerCheckSum, made.beats[0].appdConfig.configId) == (5, 9)
            await producer.close()
            with pytest.raises(TubeError) as error:
                await producer.send("test", b"x")
            assert error.value.code == Code.CLIENT_SHUTDOWN

    run(test())


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as one:
            one.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_a_master_may_have_an_ipv6_address() -> None:
    async def opened() -> None:
        async with cluster("::1") as made:
            port = made.master.port
            async with TubeProducer(f"[::1]:{port}", ["test"], QUICK) as producer:
                await producer.send("test", b"x")
            assert ":" not in producer.client_id + made.registered[0].hostName
        assert len(made.sent) == 1

    run(opened())


def test_a_producer_that_was_forgotten_registers_again() -> None:
    async def test(producer: TubeProducer, made: Cluster) -> None:
        made.beat_code = Code.HB_NO_NODE
        await until(lambda: len(made.registered) == 2)
        before = len(made.beats)
        await until(lambda: len(made.beats) > before)
        await producer.send("test", b"x")

    with_producer(test)


def test_what_a_master_says_that_is_not_ready_is_ignored() -> None:
    async def test(producer: TubeProducer, made: Cluster) -> None:
        made.beat_code = Code.NOT_READY
        before = len(made.beats)
        await until(lambda: len(made.beats) >= before + 1)
        assert len(producer.partitions("test")) == 2

    with_producer(test)


def test_a_new_list_of_brokers_is_taken() -> None:
    async def test(producer: TubeProducer, made: Cluster) -> None:
        made.brokers.pop()
        made.checksum = 6
        await until(lambda: len(producer.partitions("test")) == 1)

    with_producer(test)


def test_a_standby_is_passed_over_and_so_is_one_that_becomes_it() -> None:
    async def test() -> None:
        async with cluster() as first, cluster() as second:
            first.standby = True
            masters = f"{first.address},{second.address}"
            async with TubeProducer(masters, ["test"], QUICK) as producer:
                assert len(second.registered) == 1 and not first.registered
                first.standby, second.standby = False, True
                await until(lambda: len(first.beats) > 0)
                assert first.registered[0].clientId == producer.client_id

    run(test())


def test_a_master_that_is_gone_is_left_for_the_next() -> None:
    async def test() -> None:
        async with cluster() as first, cluster() as second:
            masters = f"{first.address},{second.address}"
            second.beat_code = Code.HB_NO_NODE
            async with TubeProducer(masters, ["test"], QUICK) as producer:
                await first.master.close()
                await until(lambda: len(second.beats) > 1)
                assert len(second.registered) == 1
                await producer.send("test", b"x")

    run(test())


def test_no_master_that_takes_it_is_why_it_does_not_open() -> None:
    async def test() -> None:
        async with cluster() as made:
            made.standby = True
            with pytest.raises(StandbyMaster):
                await TubeProducer(made.address, ["test"]).open()
            made.standby = False
            made.register_code = Code.CERTIFICATE_FAILURE
            producer = TubeProducer(made.address, ["test"])
            with pytest.raises(NotAuthenticated):
                await producer.open()
            with pytest.raises(ClientError, match="not open"):
                await producer.send("test", b"x")
            made.register_code = Code.SUCCESS
            await producer.open()
            await producer.send("test", b"x")
            await producer.close()

    run(test())


def test_a_user_signs_what_masters_and_brokers_are_asked() -> None:
    credentials = TubeCredentials("user", "pwd")

    async def test(producer: TubeProducer, made: Cluster) -> None:
        await producer.send("test", b"x")
        info = made.registered[0].authInfo.authInfo
        assert info.userName == "user"
        assert verify("user", "pwd", info.timestamp, info.nonce, info.signature)
        token = BrokerToken.parse(made.sent[0].authInfo.authAuthorizedToken)
        assert verify("user", "pwd", token.timestamp_ms, token.nonce, token.signature)

    with_producer(test, TubeProducerOptions(credentials=credentials))
