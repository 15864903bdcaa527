"""Suspended pops, and a log whose file ends after their message."""

from mq.daemons.broker.app import Broker
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.frame import encode
from tests.daemons.broker.harness import send
from tests.daemons.broker.pop.consumers import GROUP, TOPIC, PopConsumer
from tests.daemons.broker.pop.small_files import leave_room
from tests.daemons.broker.running import now
from tests.daemons.peer import Peer
from tests.waiting import until

QUESTION = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "-1"}


async def until_waiting(peer: Peer, count: int, queue_id: int = -1) -> None:
    """Return when the broker reports this many suspended pops for a queue, or for any."""

    async def so_many() -> bool:
        fields = {**QUESTION, "queueId": str(queue_id)}
        reply = await peer.ask(RequestCode.POLLING_INFO, fields)
        return reply.fields["pollingNum"] == str(count)

    await until(so_many)


async def held_before_the_end_of_a_file(
    broker: Broker, peer: Peer, consumer: PopConsumer, other: Peer
) -> None:
    """A suspended pop of `other`, opaque 7; the log's file has room for one message."""
    log = broker.stores.messages.log
    before = log.position
    await send(peer, TOPIC, b"2", 0)
    size = log.position - before
    await consumer.pop()  # all messages are in flight
    fields = consumer.header(pollTime="60000", bornTime=str(now()))
    other.writer.write(encode(Command(RequestCode.POP_MESSAGE, fields, opaque=7)))
    await until_waiting(peer, 1)
    await leave_room(peer, broker, size + 40)


def put_and_do_not_store(broker: Broker) -> None:
    """As a send that arrived earlier in this turn of the event loop."""
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
