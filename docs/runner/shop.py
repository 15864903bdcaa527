"""An application for the documents: a shop that sends orders, and groups that consume them.

    shop send TOPIC FIRST LAST [--tag TAG] [--trace] [--again]
    shop consume GROUP TOPIC COUNT [--tags EXPRESSION] [--fail KEY]
                                   [--retries N] [--trace]

Order n is a message with the key order-n, in queue n modulo the number of queues. `consume` ends
when COUNT messages were handled, including a failing one; with a COUNT of 0 it runs until it is
stopped. With `--again` failed sends are retried.
"""

import argparse
import asyncio
import os
import signal
import time
from collections.abc import Sequence

from mq.client import Consumer, Producer
from mq.client.errors import MQError
from mq.client.offsets.offset_store import OffsetStore
from mq.client.send_result import SendStatus
from mq.client.transport.session import Session
from mq.protocol.bodies import ConsumeFromWhere, MessageQueue
from mq.protocol.message import Message, StoredMessage
from mq.protocol.names import RETRY_PREFIX

NAME_SERVER = os.environ["NAMESRV_ADDR"]


async def send(chosen: argparse.Namespace) -> None:
    async with Producer(NAME_SERVER, "shop", trace=chosen.trace) as producer:
        for number in range(chosen.first, chosen.last + 1):
            message = Message(
                chosen.topic,
                f'{{"order": {number}, "total": {number * 10}}}'.encode(),
                tags=chosen.tag,
                keys=f"order-{number}",
            )

            def choose(queues: Sequence[MessageQueue], _: Message, n: int = number) -> MessageQueue:
                return queues[n % len(queues)]

            while True:
                try:
                    result = await producer.send(message, selector=choose)
                    if result.status is SendStatus.SEND_OK or not chosen.again:
                        break
                except MQError:
                    if not chosen.again:
                        raise
                await asyncio.sleep(0.1)
            # Each message has a millisecond of its own, so that its time identifies it.
            await asyncio.to_thread(time.sleep, 0.005)


class OfWhatWasRead(OffsetStore):
    """Offsets, without those of retry queues that were not read.

    Whether a member gets its retry queues before it ends differs between runs, and so would the
    output about the group in a page.
    """

    def update(self, queue: MessageQueue, offset: int) -> None:
        if offset or not queue.topic.startswith(RETRY_PREFIX):
            super().update(queue, offset)


async def consume(chosen: argparse.Namespace) -> None:
    complete = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, complete.set)
    handled = 0

    async def handle(message: StoredMessage) -> None:
        nonlocal handled
        handled += 1
        if handled == chosen.count:
            complete.set()
        if chosen.fail in message.keys:
            raise ValueError("no such article")

    async with (
        Session(NAME_SERVER) as session,
        Consumer(
            session,
            chosen.group,
            {chosen.topic: chosen.tags},
            listener=handle,
            consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            max_reconsume_times=chosen.retries,
            trace=chosen.trace,
            offsets=OfWhatWasRead(session, chosen.group),
        ),
    ):
        await complete.wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    jobs = parser.add_subparsers(required=True)
    sends = jobs.add_parser("send")
    sends.set_defaults(job=send)
    sends.add_argument("topic")
    sends.add_argument("first", type=int)
    sends.add_argument("last", type=int)
    sends.add_argument("--tag")
    sends.add_argument("--trace", action="store_true")
    sends.add_argument("--again", action="store_true")
    consumes = jobs.add_parser("consume")
    consumes.set_defaults(job=consume)
    consumes.add_argument("group")
    consumes.add_argument("topic")
    consumes.add_argument("count", type=int)
    consumes.add_argument("--tags", default="*")
    consumes.add_argument("--fail")
    consumes.add_argument("--retries", type=int, default=16)
    consumes.add_argument("--trace", action="store_true")
    chosen = parser.parse_args()
    asyncio.run(chosen.job(chosen))


if __name__ == "__main__":
    main()
