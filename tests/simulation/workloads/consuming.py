"""Push consumers: members of groups that consume concurrently, in order, or each all."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from zlib import crc32

from mq.client import ConsumeOptions, Consumer
from mq.client.errors import MQError
from mq.protocol.bodies import ConsumeFromWhere
from mq.protocol.message import StoredMessage
from mq.protocol.names import retry_topic
from tests.simulation.model import Group
from tests.simulation.model.content import damage, number_of
from tests.simulation.model.groups import Positions, Queue
from tests.simulation.workloads.context import Context, Workload

# How often a message is tried again before it is a dead letter.
RECONSUME_TIMES = 3
_LONG = 1000.0
# The longest that a listener takes.
LISTENS_SECONDS = 0.3


def fails(number: int, failed: int, mode: str) -> bool:
    """Whether the listener of a group fails on a message that it has failed on so often before."""
    chance = crc32(b"%d fails" % number) % 100
    return (chance < 2 and mode == "concurrent") or (chance < 10 and failed < 1 + chance % 2)


def consume(
    group: Group,
    member: str,
    stays: float = _LONG,
    is_failing: bool = True,
    *,
    snode: bool = False,
    kind: type[Consumer] = Consumer,
) -> Workload:
    """A member of a group. It leaves after so many seconds, and joins again a little later.

    With `snode` it goes through snodes; then `kind` may be one that is pushed to.
    """

    async def run(context: Context) -> None:
        options = ConsumeOptions(
            consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            ordered=group.mode == "ordered",
            broadcasting=group.mode == "broadcasting",
            suspension=0.5,
            max_reconsume_times=None if group.mode == "ordered" else RECONSUME_TIMES,
            concurrency=4,
            offset_directory=Path(f"/sim/{member}/offsets"),
        )
        group.member_died(member)  # if it was here before
        listen = _listener(context, group, member, is_failing)
        tags = " || ".join(group.tags) or "*"
        while True:
            leaves = context.now
            try:
                async with kind(
                    context.name_servers, group.name, {group.topic: tags}, options,
                    client=context.client(member, snode=snode), listener=listen,
                ) as consumer:  # fmt: skip
                    group.positions[member] = _positions(context, consumer)
                    try:
                        await asyncio.sleep(stays)
                    finally:
                        leaves = context.now
            except MQError as error:  # no name server there: it is tried again
                context.tell(f"{member}: {error!r}")
            finally:
                group.leaves.append((leaves - LISTENS_SECONDS, context.now))
            group.member_died(member)
            await asyncio.sleep(context.random.uniform(0.1, 5.0))

    return run


def _positions(context: Context, consumer: Consumer) -> Positions:
    process = context.cluster.world.current
    assert process is not None

    def positions() -> list[tuple[Queue, int]]:
        held = consumer.reader.held if process.is_alive else {}
        return [
            ((queue.topic, queue.broker_name, queue.queue_id), one.next_offset)
            for queue, one in held.items()
        ]

    return positions


def _listener(
    context: Context, group: Group, member: str, is_failing: bool
) -> Callable[[StoredMessage], Awaitable[None]]:
    model, retries = context.model, retry_topic(group.name)

    async def listen(message: StoredMessage) -> None:
        number = number_of(message)
        model.requests += 1
        text = damage(message, only_body=model.is_rotten)
        if text or number not in model.sent:
            model.wrong(f"{group.name} was given what nobody sent: {text or number}")
        again = group.mode == "concurrent" and message.reconsume_times > 0
        topic = retries if again else group.topic
        queue, offset = (topic, message.broker_name, message.queue_id), message.queue_offset
        context.tell(f"is given message {number} of {queue} {offset}")
        process = context.cluster.world.current
        assert process is not None
        is_alive = lambda: process.is_alive  # noqa: E731
        group.look(context.now)
        group.begins(member, number, queue, offset, context.now, is_alive)
        if context.random.random() < 0.2:
            try:
                await asyncio.sleep(context.random.uniform(0.0, LISTENS_SECONDS))
            except asyncio.CancelledError:
                group.abandons(member, number, queue, offset)
                raise
        well = not is_failing or not fails(number, group.failed[number], group.mode)
        group.ends(member, number, queue, offset, well=well)
        if not well:
            raise RuntimeError(f"the listener fails on {number}")

    return listen
