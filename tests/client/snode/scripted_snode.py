"""A scripted snode: queues of one broker in memory, whose messages are pushed on request."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from mq.daemons.channel import Channel
from mq.daemons.dispatch import Handler
from mq.protocol.bodies import (
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
    SnodeClusterInfo,
    SnodeData,
)
from mq.protocol.codes import RequestCode, ResponseCode, SnodeCode
from mq.protocol.command import Command
from mq.protocol.message import StoredMessage, encode_record
from tests.client.scripted import closed_port, routes, scripted

TOPIC = "Orders"
GROUP = "billing"
BROKER = "broker-a"
QUEUE = MessageQueue(TOPIC, BROKER, 0)


class Queues:
    """The state of the broker that all snodes forward to."""

    def __init__(self) -> None:
        self.messages: dict[MessageQueue, list[StoredMessage]] = defaultdict(list)
        self.offsets: dict[MessageQueue, int] = {}
        self.waiting: list[tuple[Command, Channel]] = []
        self.pulls: Counter[str] = Counter()  # by topic
        self.holds = False  # whether pulls wait although there are messages
        self.began = 1_600_000_000_000

    def store(self, body: bytes, queue: MessageQueue = QUEUE, tag: str = "") -> StoredMessage:
        """Store a message; pulls that wait get it only by `answer_pulls`."""
        messages = self.messages[queue]
        message = StoredMessage(
            queue.topic,
            body,
            {"TAGS": tag} if tag else {},
            queue_id=queue.queue_id,
            queue_offset=len(messages),
            physical_offset=sum(map(len, self.messages.values())) * 1000,
            store_timestamp=self.began + len(messages),
        )
        messages.append(message)
        return message

    def answer_pulls(self) -> None:
        """Answer the suspended pulls for which there are messages."""
        waiting, self.waiting = self.waiting, []
        for request, channel in waiting:
            reply = self.pull(request, channel)
            if reply is not None:
                channel.send(reply)

    def pull(self, request: Command, channel: Channel) -> Command | None:
        fields = request.fields
        queue = MessageQueue(fields["topic"], fields["enodeName"], int(fields["queueId"]))
        offset = int(fields["queueOffset"])
        found = self.messages[queue][offset : offset + int(fields["maxMsgNums"])]
        end = len(self.messages[queue])
        bounds = {"suggestWhichBrokerId": "0", "minOffset": "0", "maxOffset": str(end)}
        if offset > end:
            bounds["nextBeginOffset"] = str(end)
            return request.reply(ResponseCode.PULL_OFFSET_MOVED, bounds)
        if not found or self.holds:
            self.waiting.append((request, channel))
            return None
        bounds["nextBeginOffset"] = str(offset + len(found))
        return request.reply(0, bounds, b"".join(map(encode_record, found)))


class ScriptedSnode:
    """One snode."""

    def __init__(self, queues: Queues, name: str) -> None:
        self.queues = queues
        self.name = name
        self.address = ""
        self.heartbeats: list[tuple[HeartbeatData, Channel]] = []
        self.asked: Counter[int] = Counter()
        self.channels: dict[Channel, None] = {}

    @property
    def claimed(self) -> set[MessageQueue]:
        """The queues of the last heartbeat that are to be pushed."""
        if not self.heartbeats:
            return set()
        return {
            queue
            for consumer in self.heartbeats[-1][0].consumer_data_set
            for subscription in consumer.subscription_data_set
            for queue in subscription.message_queue_set or ()
        }

    def push(self, message: StoredMessage, broker: str = BROKER, body: bytes | None = None) -> None:
        """Push a message to the client that sent the last heartbeat."""
        fields = {
            "queueOffset": str(message.queue_offset),
            "queueId": str(message.queue_id),
            "topic": message.topic,
            "consumerGroup": GROUP,
            "enodeName": broker,
        }
        record = encode_record(message) if body is None else body
        self.heartbeats[-1][1].notify(Command(SnodeCode.PUSH_MESSAGE, fields, record))

    def handlers(self) -> dict[int, Handler]:
        answers: dict[int, Handler] = {
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.UNREGISTER_CLIENT: lambda request, channel: request.reply(),
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._members,
            RequestCode.QUERY_CONSUMER_OFFSET: self._committed,
            RequestCode.UPDATE_CONSUMER_OFFSET: self._commit,
            RequestCode.LOCK_BATCH_MQ: self._lock,
            RequestCode.UNLOCK_BATCH_MQ: lambda request, channel: request.reply(),
            RequestCode.GET_MAX_OFFSET: lambda request, channel: request.reply(0, {"offset": "0"}),
            RequestCode.PULL_MESSAGE: self._pull,
            RequestCode.SEND_MESSAGE_V2: self._send,
        }
        return {code: self._counted(code, answer) for code, answer in answers.items()}

    def _counted(self, code: int, answer: Handler) -> Handler:
        def serve(request: Command, channel: Channel) -> object:
            self.asked[code] += 1
            self.channels[channel] = None
            return answer(request, channel)

        return serve  # type: ignore[return-value]

    def _heartbeat(self, request: Command, channel: Channel) -> Command:
        self.heartbeats.append((HeartbeatData.decode(request.body), channel))
        return request.reply()

    def _members(self, request: Command, channel: Channel) -> Command:
        ids = sorted({heartbeat.client_id for heartbeat, _ in self.heartbeats})
        body = GetConsumerListByGroupResponseBody(consumer_id_list=ids)
        return request.reply(0, None, body.encode())

    def _queue(self, request: Command) -> MessageQueue:
        fields = request.fields
        return MessageQueue(fields["topic"], fields["enodeName"], int(fields["queueId"]))

    def _committed(self, request: Command, channel: Channel) -> Command:
        offset = self.queues.offsets.get(self._queue(request), 0)
        return request.reply(0, {"offset": str(offset)})

    def _commit(self, request: Command, channel: Channel) -> Command:
        self.queues.offsets[self._queue(request)] = int(request.fields["commitOffset"])
        return request.reply()

    def _lock(self, request: Command, channel: Channel) -> Command:
        assert request.fields["enodeName"] == BROKER
        queues = LockBatchRequestBody.decode(request.body).mq_set
        body = LockBatchResponseBody(lock_ok_mq_set=queues)
        return request.reply(0, None, body.encode())

    def _pull(self, request: Command, channel: Channel) -> Command | None:
        self.queues.pulls[request.fields["topic"]] += 1
        return self.queues.pull(request, channel)

    def _send(self, request: Command, channel: Channel) -> Command:
        queue = MessageQueue(request.fields["b"], request.fields["n"], int(request.fields["e"]))
        message = self.queues.store(bytes(request.body), queue)
        place = {"queueId": request.fields["e"], "queueOffset": str(message.queue_offset)}
        return request.reply(0, {"msgId": message.offset_id, **place})

    def break_off(self) -> None:
        """End every connection."""
        for channel in list(self.channels):
            channel.abort()
        self.channels.clear()


class Stage:
    """Snodes, and their name server. No broker listens at the address `broker`."""

    def __init__(self, queues: Queues, snodes: list[ScriptedSnode], namesrv: str) -> None:
        self.queues = queues
        self.snodes = snodes
        self.namesrv = namesrv

    @property
    def snode(self) -> ScriptedSnode:
        return self.snodes[0]

    async def settled(self, count: int) -> None:
        """Return when the messages so far are committed up to an offset."""
        async with asyncio.timeout(15):
            while self.queues.offsets.get(QUEUE, 0) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


@asynccontextmanager
async def snodes_by_script(count: int = 1, queues: int = 1) -> AsyncIterator[Stage]:
    """So many snodes before one broker, which has so many queues of each topic."""
    store = Queues()
    async with AsyncExitStack() as stack:
        snodes = [ScriptedSnode(store, f"snode-{number}") for number in range(count)]
        for snode in snodes:
            snode.address = await stack.enter_async_context(scripted(snode.handlers()))

        def tell(request: Command, channel: Channel) -> Command:
            table = {
                snode.name: SnodeData(
                    snode_name=snode.name, address=snode.address, cluster_name="c"
                )
                for snode in snodes
            }
            body = SnodeClusterInfo(snode_table=table, snode_cluster={"c": set(table)})
            return request.reply(0, None, body.encode())

        handlers: dict[int, Handler] = {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: routes({BROKER: closed_port()}, queues)
        }
        handlers[SnodeCode.GET_SNODE_CLUSTER_INFO] = tell
        yield Stage(store, snodes, await stack.enter_async_context(scripted(handlers)))
