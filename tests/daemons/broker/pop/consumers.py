"""A consumer that pops with bare requests."""

import asyncio
import base64
from collections.abc import Awaitable, Callable
from pathlib import Path

from mq.daemons.broker.app import Broker
from mq.protocol.bodies.pop import BatchAck, BatchAckMessageRequestBody
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.message import StoredMessage, decode_records
from tests.daemons.broker.harness import create_topic, send
from tests.daemons.broker.running import broker_on
from tests.daemons.peer import Peer

TOPIC = "Popped"
GROUP = "G"
RETRY = "%RETRY%G_Popped"
POLL = {"pollTime": "20000"}  # of a pop that waits for messages


async def fill(peer: Peer, count: int, queues: int = 1, tag: str = "a") -> None:
    """Create the topic and send messages "0", "1" and so on to its queues in turn."""
    await create_topic(peer, TOPIC, queues)
    for number in range(count):
        await send(peer, TOPIC, b"%d" % number, number % queues, f"TAGS\x01{tag}")


class Popped:
    """A message with the receipt that the client would create for it (MQClientAPIImpl)."""

    def __init__(self, message: StoredMessage, reply: Command, broker: str) -> None:
        self.message = message
        self.body = bytes(message.body)
        self.topic = message.topic
        self.queue_id = message.queue_id
        self.offset = message.queue_offset
        fields = reply.fields
        self.receipt = message.properties.get("POP_CK", "")
        if not self.receipt:
            starts = dict(
                (f"{mark} {queue}", start)
                for mark, queue, start in (
                    part.split(" ") for part in fields["startOffsetInfo"].split(";")
                )
            )
            mark = "1" if self.topic.startswith("%RETRY%") else "0"
            self.receipt = (
                f"{starts[f'{mark} {self.queue_id}']} {fields['popTime']} "
                f"{fields['invisibleTime']} {fields['reviveQid']} {mark} {broker} {self.queue_id} "
                f"{self.offset}"
            )
            message.topic = message.topic.removeprefix(f"%RETRY%{GROUP}_")
        if self.receipt.split(" ")[4] == "1":
            self.topic = f"%RETRY%{GROUP}_{message.topic}"


class PopConsumer:
    """Pops as a group does."""

    def __init__(self, peer: Peer, broker: Broker, group: str = GROUP) -> None:
        self.peer = peer
        self.broker_name = broker.settings.broker.broker_name
        self.group = group

    def header(self, **fields: str) -> dict[str, str]:
        header = {"consumerGroup": self.group, "topic": TOPIC, "queueId": "-1", "initMode": "0"}
        header |= {"maxMsgNums": "32", "invisibleTime": "60000", "pollTime": "0", "bornTime": "0"}
        return header | fields

    async def ask(self, **fields: str) -> Command:
        return await self.peer.ask(RequestCode.POP_MESSAGE, self.header(**fields))

    async def pop(self, **fields: str) -> list[Popped]:
        """Pop available messages, or those that arrive within pollTime."""
        reply = await self.ask(**fields)
        if reply.code == ResponseCode.POLLING_TIMEOUT:
            return []
        assert reply.code == ResponseCode.SUCCESS, reply
        messages = decode_records(reply.body)
        return [Popped(message, reply, self.broker_name) for message in messages]

    async def ack(self, popped: Popped) -> Command:
        return await self.peer.ask(RequestCode.ACK_MESSAGE, self.names(popped))

    async def hide(self, popped: Popped, milliseconds: int) -> Command:
        fields = {**self.names(popped), "invisibleTime": str(milliseconds)}
        return await self.peer.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields)

    async def ack_all(self, popped: list[Popped]) -> Command:
        """One batch for messages of one pop and queue."""
        start, pop_time, invisible, revive, mark = popped[0].receipt.split(" ")[:5]
        bits = sum(1 << (one.offset - int(start)) for one in popped)
        raw = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
        ack = BatchAck(
            consumer_group=self.group,
            topic=TOPIC,
            retry=mark,
            start_offset=int(start),
            queue_id=popped[0].queue_id,
            revive_queue_id=int(revive),
            pop_time=int(pop_time),
            invisible_time=int(invisible),
            bit_set=base64.b64encode(raw).decode(),
        )
        body = BatchAckMessageRequestBody(broker_name=self.broker_name, acks=[ack]).encode()
        return await self.peer.ask(RequestCode.BATCH_ACK_MESSAGE, None, body)

    def names(self, popped: Popped) -> dict[str, str]:
        return {
            "consumerGroup": self.group,
            "topic": popped.topic,
            "queueId": str(popped.queue_id),
            "extraInfo": popped.receipt,
            "offset": str(popped.offset),
        }


def bodies(popped: list[Popped]) -> list[bytes]:
    return sorted(one.body for one in popped)


def run(
    root: Path, script: Callable[[Broker, Peer, PopConsumer], Awaitable[None]], **settings: str
) -> None:
    """Run a script with a broker, a peer of it and a consumer of that peer."""

    async def main() -> None:
        async with broker_on(root, **settings) as broker, Peer(broker.port) as peer:
            await script(broker, peer, PopConsumer(peer, broker))

    asyncio.run(main())
