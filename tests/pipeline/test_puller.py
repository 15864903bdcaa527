import asyncio
import os
import random
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mq.client.admin import Admin
from mq.client.errors import RemoteSystemError
from mq.client.transport.blocking import BlockingSession, run
from mq.daemons.channel import Channel
from mq.pipeline.errors import BrokerAway, DataLoss
from mq.pipeline.puller import PullSettings, QueuePuller, QueueRange, Segment
from mq.protocol.bodies import MessageQueue
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.testing import RunningBroker
from tests.client.clusters import TOPIC, numbers
from tests.client.replicas import named, replica
from tests.client.scripted import scripted
from tests.pipeline.filling import fill

QUICK = PullSettings("TOOLS_CONSUMER", timeout=5, retries=2, retry_pause=0.05)


@pytest.fixture
def session(mq_session_broker: RunningBroker) -> Iterator[BlockingSession]:
    with BlockingSession(mq_session_broker.name_server) as made:
        yield made


def bodies_of(segments: Iterator[Segment]) -> list[tuple[int, bytes]]:
    """Queue offset and body of each record."""
    found = []
    for buffer, positions in segments:
        for at in positions:
            (offset,) = struct.unpack_from(">q", buffer, at + 20)
            (length,) = struct.unpack_from(">i", buffer, at + 84)
            found.append((offset, bytes(buffer[at + 88 : at + 88 + length])))
    return found


def pull(
    session: BlockingSession,
    topic: str,
    begin: int,
    end: int,
    settings: PullSettings = QUICK,
) -> list[tuple[int, bytes]]:
    pulled = QueueRange(topic, "broker-a", 0, begin, end)
    return bodies_of(QueuePuller(session, pulled, settings).segments())


def test_a_range_is_complete_and_in_order_whatever_the_sizes(
    mq_session_broker: RunningBroker, mq_topic: str, session: BlockingSession
) -> None:
    chance = random.Random(7)
    bodies = [bytes([n % 256]) * chance.choice((1, 10, 1000, 30_000)) for n in range(1500)]
    queue = MessageQueue(mq_topic, "broker-a", 0)
    fill(mq_session_broker.name_server, mq_topic, bodies, queue)
    for batch in (1, 7, 1024):
        found = pull(session, mq_topic, 100, 1400, QUICK._replace(batch=batch))
        assert found == list(enumerate(bodies))[100:1400]


def test_a_filter_at_the_broker_leaves_gaps_but_loses_nothing(
    mq_session_broker: RunningBroker, mq_topic: str, session: BlockingSession
) -> None:
    queue = MessageQueue(mq_topic, "broker-a", 0)
    for n in range(20):
        tag = "Wanted" if n % 5 == 3 else "Other"
        fill(mq_session_broker.name_server, mq_topic, [b"%d" % n] * 60, queue, tag)
    found = pull(session, mq_topic, 0, 1200, QUICK._replace(expression="Wanted"))
    assert found == [(n, b"%d" % (n // 60)) for n in range(1200) if n // 60 % 5 == 3]


def test_a_refusal_is_reported_with_the_remark_of_the_broker(
    mq_topic: str, session: BlockingSession
) -> None:
    settings = QUICK._replace(expression="a > 1", expression_type="SQL92")
    with pytest.raises(RemoteSystemError, match=r"does not support .* by SQL92"):
        pull(session, mq_topic, 0, 10, settings)


def test_deleted_messages_are_reported(
    mq_session_broker: RunningBroker, mq_topic: str, session: BlockingSession
) -> None:
    fill(mq_session_broker.name_server, mq_topic, [b"x"] * 5, MessageQueue(mq_topic, "broker-a", 0))
    short = QUICK._replace(timeout=0.3)
    with pytest.raises(DataLoss, match="from offset 5 to 9 are gone: it ends at 5 now"):
        pull(session, mq_topic, 0, 9, short)
    found = pull(session, mq_topic, 0, 9, short._replace(fail_on_data_loss=False))
    assert found == [(n, b"x") for n in range(5)]


@pytest.mark.parametrize("comes_back", [False, True])
def test_messages_that_a_replica_lacks_are_not_lost_while_its_master_is_down(
    comes_back: bool,
) -> None:
    """With failOnDataLoss off, a stream would skip the messages for good: its batch would be
    complete.
    """
    settings = QUICK._replace(timeout=0.3, fail_on_data_loss=False, skip_absent=False)

    def pull_all(name_server: str) -> list[tuple[int, bytes]]:
        with BlockingSession(name_server) as session:
            return pull(session, TOPIC, 0, 9, settings)

    async def script() -> None:
        addresses: dict[int, str] = {}
        async with (
            scripted(replica(5)) as behind,
            scripted(replica(9)) as master,
            named(addresses) as name_server,
        ):
            addresses[1] = behind
            pulling = asyncio.create_task(asyncio.to_thread(pull_all, name_server))
            if comes_back:
                await asyncio.wait([pulling], timeout=0.2)
                addresses[0] = master
                assert await pulling == list(enumerate(numbers(9)))
            else:
                with pytest.raises(BrokerAway, match="a replica, which ends at 5"):
                    await pulling

    asyncio.run(script())


def test_a_master_that_returns_gets_its_own_timeout() -> None:
    """A master that shows only what its replicas have confirmed shows fewer messages at first."""
    settings = QUICK._replace(timeout=0.5, fail_on_data_loss=False, skip_absent=False)
    whole, begun = replica(9)[RequestCode.PULL_MESSAGE], replica(5)[RequestCode.PULL_MESSAGE]
    asked = 0

    def pull_of_master(request: Command, channel: Channel) -> Command:
        nonlocal asked
        asked += 1
        answer = (begun if asked == 1 else whole)(request, channel)
        assert isinstance(answer, Command)
        return answer

    def pull_all(name_server: str) -> list[tuple[int, bytes]]:
        with BlockingSession(name_server) as session:
            return pull(session, TOPIC, 0, 9, settings)

    async def script() -> None:
        addresses: dict[int, str] = {}
        async with (
            scripted(replica(5)) as behind,
            scripted({RequestCode.PULL_MESSAGE: pull_of_master}) as master,
            named(addresses) as name_server,
        ):
            addresses[1] = behind
            pulling = asyncio.create_task(asyncio.to_thread(pull_all, name_server))
            await asyncio.wait([pulling], timeout=0.2)
            addresses[0] = master
            assert await pulling == list(enumerate(numbers(9)))

    asyncio.run(script())


def test_pulls_continue_at_a_broker_that_returns_and_fail_at_one_that_does_not(
    tmp_path: Path,
) -> None:
    topic, bodies = "T", [b"%d" % n * 3000 for n in range(2000)]
    with RunningBroker(tmp_path / "store") as broker:
        broker.create_topic(topic, 1)
        fill(broker.name_server, topic, bodies)
        with BlockingSession(broker.name_server) as session:
            settings = PullSettings("TOOLS_CONSUMER", batch=8, retries=6, retry_pause=0.2)
            pulled = QueueRange(topic, "broker-a", 0, 0, 2000)
            segments = QueuePuller(session, pulled, settings).segments()
            found = bodies_of(iter([next(segments)]))
            broker.stop()
            again = threading.Timer(0.5, broker.start)
            again.start()
            found += bodies_of(segments)
            again.join()
            assert found == list(enumerate(bodies))

            segments = QueuePuller(session, pulled, QUICK).segments()
            got = bodies_of(iter([next(segments)]))
            broker.stop()
            with pytest.raises(DataLoss, match=r"3 attempts failed: .*start the broker"):
                bodies_of(segments)
            broker.start()
            assert got[0] == (0, bodies[0])


def test_expired_messages_are_data_loss_or_skipped(tmp_path: Path) -> None:
    bodies = [b"%02d" % n * 10_000 for n in range(20)]  # three per log file
    store = tmp_path / "store"
    with RunningBroker(store, {"mappedFileSizeCommitLog": "65536"}) as broker:
        broker.create_topic("T", 1)
        fill(broker.name_server, "T", bodies, per_batch=1)
        broker.restart()  # all messages are flushed
        for file in sorted(store.rglob("commitlog/*"))[:3]:
            os.utime(file, (1_000_000_000, 1_000_000_000))
        with BlockingSession(broker.name_server) as session:
            run(Admin(session).delete_expired_commit_log(broker.address))
            kept = run(Admin(session).min_offset(broker.address, "T", 0))
            assert 0 < kept < 20
            for batch in (1, 4, 1024):
                settings = QUICK._replace(batch=batch)
                with pytest.raises(DataLoss, match=r"the messages from offset 0 to .* are gone"):
                    pull(session, "T", 0, 20, settings)
                found = pull(session, "T", 0, 20, settings._replace(fail_on_data_loss=False))
                assert found == list(enumerate(bodies))[kept:]
