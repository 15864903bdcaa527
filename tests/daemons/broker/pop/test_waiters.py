from pathlib import Path

from mq.daemons.broker.app import Broker
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.frame import encode
from mq.protocol.message import decode_records
from tests.daemons.broker.harness import send
from tests.daemons.broker.pop.consumers import GROUP, TOPIC, PopConsumer, fill
from tests.daemons.broker.pop.deletions import DELETIONS, run
from tests.daemons.broker.pop.small_files import SMALL, leave_room
from tests.daemons.broker.running import now
from tests.daemons.peer import Peer
from tests.waiting import until

QUESTION = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "-1"}


async def held_before_the_end_of_a_file(
    broker: Broker, peer: Peer, consumer: PopConsumer, other: Peer
) -> None:
    """A pop of `other` waits, opaque 7; the log's file has room for one message and no more."""
    log = broker.stores.messages.log
    before = log.position
    await send(peer, TOPIC, b"2", 0)
    size = log.position - before
    await consumer.pop()  # what is there is out
    fields = consumer.header(pollTime="60000", bornTime=str(now()))
    other.writer.write(encode(Command(RequestCode.POP_MESSAGE, fields, opaque=7)))

    async def waits() -> bool:
        reply = await peer.ask(RequestCode.POLLING_INFO, QUESTION)
        return reply.fields["pollingNum"] == "1"

    await until(waits)
    await leave_room(peer, broker, size + 40)


def put_and_do_not_store(broker: Broker) -> None:
    """As a send that came earlier in this turn of the loop."""
    messages = broker.stores.messages
    host = bytes((127, 0, 0, 1, 0, 0, 0, 9))
    messages.appender.append(
        messages.queue(TOPIC, 0),
        b"3",
        b"\0\0",  # no properties
        flag=0,
        sys_flag=0,
        born_timestamp=now(),
        born_host=host,
    )


def test_a_pop_whose_check_point_begins_a_file_is_answered_once(tmp_path: Path) -> None:
    """That stores what was put before it, and wakes the pop in the middle of its answer."""

    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        async with Peer(broker.port) as other:
            await fill(peer, 2)
            await held_before_the_end_of_a_file(broker, peer, consumer, other)
            broker.stores.offsets.commit(GROUP, TOPIC, 0, 0)
            put_and_do_not_store(broker)
            broker.services.pop._pop._waiters.wake_group(GROUP, TOPIC)
            reply = await other.receive()
            assert [bytes(each.body) for each in decode_records(reply.body)] == [b"0", b"1", b"2"]
            reply = await other.ask(RequestCode.POLLING_INFO, QUESTION)  # what comes next
            assert (reply.opaque != 7, reply.fields["pollingNum"]) == (True, "0")

    run(tmp_path, script, **SMALL)


def test_a_pop_that_waits_for_a_group_that_is_deleted_is_given_nothing_of_what_comes(
    tmp_path: Path,
) -> None:
    async def script(broker: Broker, peer: Peer, consumer: PopConsumer) -> None:
        async with Peer(broker.port) as other:
            await fill(peer, 2)
            await held_before_the_end_of_a_file(broker, peer, consumer, other)
            offsets = broker.stores.offsets
            offsets.on_group_removed.insert(0, lambda group: put_and_do_not_store(broker))
            code = RequestCode.DELETE_SUBSCRIPTIONGROUP
            assert (await peer.ask(code, DELETIONS[code])).code == ResponseCode.SUCCESS
            assert (await other.receive()).code == ResponseCode.POLLING_TIMEOUT
            assert offsets.query(GROUP, TOPIC, 0) == -1
            assert len(broker.services.pop.points) == 0

    run(tmp_path, script, **SMALL)
