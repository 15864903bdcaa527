"""Masters and brokers that play a part: real sockets, and such answers as a test wants.

A peer gives, for each method, what its script says next, and at the end the last again:

    master.plays(Method.CONSUMER_HEARTBEAT_C2M, event(7, EventType.CONNECT, partition), accept)

A step is a message, a function of the request that gives one, or one of the ways of having none:
`STANDBY`, `HANG` (no answer, ever), `HANG_UP`, `BROKEN` (no message), `GARBAGE` (no frame), or a
future of one of these, which is answered when it is there.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast
from zlib import crc32

from google.protobuf.message import Message

from mq.protocol.tube import rpc
from mq.protocol.tube.codes import Code, EventType, Method, OpType
from mq.protocol.tube.frame import FrameDecoder
from mq.protocol.tube.messages import (
    CloseRequestC2M,
    CloseResponseM2C,
    CommitOffsetRequestC2B,
    CommitOffsetResponseB2C,
    EventProto,
    GetMessageRequestC2B,
    GetMessageResponseB2C,
    GetPartMetaRequestC2M,
    GetPartMetaResponseM2C,
    HeartBeatRequestC2B,
    HeartBeatResponseB2C,
    HeartRequestC2M,
    HeartRequestC2MV2,
    HeartResponseM2C,
    HeartResponseM2CV2,
    RegisterRequestC2B,
    RegisterRequestC2M,
    RegisterRequestC2MV2,
    RegisterResponseB2C,
    RegisterResponseM2C,
    RegisterResponseM2CV2,
    TransferedMessage,
    parse,
)
from mq.protocol.tube.payload import encode
from mq.protocol.tube.strings import BrokerInfo, Partition, SubscribeInfo

M = TypeVar("M", bound=Message)

STANDBY = "standby"
HANG = "hang"
HANG_UP = "hang up"
BROKEN = "broken"
GARBAGE = "garbage"

Step = Message | str | Callable[[Any], Message | str] | asyncio.Future[Message]

REQUESTS: dict[Method, type[Message]] = {
    Method.CONSUMER_REGISTER_C2M: RegisterRequestC2M,
    Method.CONSUMER_HEARTBEAT_C2M: HeartRequestC2M,
    Method.CONSUMER_CLOSE_C2M: CloseRequestC2M,
    Method.CONSUMER_REGISTER_V2_C2M: RegisterRequestC2MV2,
    Method.CONSUMER_HEARTBEAT_V2_C2M: HeartRequestC2MV2,
    Method.CONSUMER_GET_PART_META_C2M: GetPartMetaRequestC2M,
    Method.CONSUMER_REGISTER_C2B: RegisterRequestC2B,
    Method.CONSUMER_HEARTBEAT_C2B: HeartBeatRequestC2B,
    Method.GET_MESSAGES_C2B: GetMessageRequestC2B,
    Method.CONSUMER_COMMIT_C2B: CommitOffsetRequestC2B,
}
ANSWERS: dict[Method, type[Message]] = {
    Method.CONSUMER_REGISTER_C2M: RegisterResponseM2C,
    Method.CONSUMER_HEARTBEAT_C2M: HeartResponseM2C,
    Method.CONSUMER_CLOSE_C2M: CloseResponseM2C,
    Method.CONSUMER_REGISTER_V2_C2M: RegisterResponseM2CV2,
    Method.CONSUMER_HEARTBEAT_V2_C2M: HeartResponseM2CV2,
    Method.CONSUMER_GET_PART_META_C2M: GetPartMetaResponseM2C,
    Method.CONSUMER_REGISTER_C2B: RegisterResponseB2C,
    Method.CONSUMER_HEARTBEAT_C2B: HeartBeatResponseB2C,
    Method.GET_MESSAGES_C2B: GetMessageResponseB2C,
    Method.CONSUMER_COMMIT_C2B: CommitOffsetResponseB2C,
}


def refuse(method: Method, code: int, text: str = "no") -> Message:
    """The answer of a method that refuses."""
    kind = ANSWERS[method]
    fields = {"errCode": code, "errMsg": text}
    if "success" in kind.DESCRIPTOR.fields_by_name:
        return kind(success=False, **fields)
    return kind(**fields)


def accept(method: Method, **fields: Any) -> Any:
    """The answer of a method that does what it was asked for."""
    kind = ANSWERS[method]
    fields = {"errCode": int(Code.SUCCESS), "errMsg": "OK", **fields}
    if "success" in kind.DESCRIPTOR.fields_by_name:
        fields["success"] = True
    return kind(**fields)


class Peer:
    """A server on a port of its own."""

    def __init__(self) -> None:
        self.requests: list[tuple[Method, Any]] = []  # all that came, in order
        self.times: list[float] = []  # when, seconds of the loop
        self._scripts: dict[Method, deque[Step]] = defaultdict(deque)
        self._news = asyncio.Event()
        self.connections: set[_Server] = set()
        self._server: asyncio.Server
        self.port = 0
        self.connected = 0  # connections so far
        self.is_deaf = False  # answers nothing

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def plays(self, method: Method, *steps: Step) -> None:
        """What it answers to this from now on: each step once, then the last again and again."""
        self._scripts[method] = deque(steps)

    def has_script(self, method: Method) -> bool:
        return bool(self._scripts[method])

    def step(self, method: Method, request: Any) -> Step:
        script = self._scripts[method]
        if not script:
            return self.usually(method, request)
        step = script.popleft() if len(script) > 1 else script[0]
        return step(request) if callable(step) else step

    def usually(self, method: Method, request: Any) -> Step:
        """What it answers without a script."""
        return cast(Message, accept(method))

    def asked(self, method: Method) -> list[Any]:
        """The requests of a method that have come."""
        return [request for kind, request in self.requests if kind == method]

    def asked_at(self, method: Method) -> list[float]:
        """When they have come, seconds of the loop."""
        return [
            time
            for (kind, _), time in zip(self.requests, self.times, strict=True)
            if kind == method
        ]

    async def heard(self, method: Method, count: int = 1) -> Any:
        """Wait until so many requests of a method have come; returns the last of them."""
        while len(self.asked(method)) < count:
            self._news.clear()
            await self._news.wait()
        return self.asked(method)[count - 1]

    def hear(self, method: Method, request: Any) -> None:
        self.requests.append((method, request))
        self.times.append(asyncio.get_running_loop().time())
        self._news.set()

    async def open(self, ssl: Any = None, host: str = "127.0.0.1", port: int = 0) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Server(self), host, port, ssl=ssl)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        self._server.close()
        self.hang_up()
        await self._server.wait_closed()

    def hang_up(self) -> None:
        """End all connections."""
        for connection in list(self.connections):
            connection.transport.abort()


class _Server(asyncio.Protocol):
    transport: asyncio.Transport

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._decoder = FrameDecoder()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._peer.connections.add(self)
        self._peer.connected += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self._peer.connections.discard(self)

    def data_received(self, data: bytes) -> None:
        for serial, payload in self._decoder.feed(data):
            request = rpc.decode_request(serial, payload)
            method = Method(request.method)
            message = parse(REQUESTS[method], request.body)
            self._peer.hear(method, message)
            if not self._peer.is_deaf:
                self._answer(request, method, self._peer.step(method, message))

    def _answer(self, request: rpc.Request, method: Method, step: Step) -> None:
        write = self.transport.write
        if isinstance(step, asyncio.Future):
            step.add_done_callback(lambda done: self._answer(request, method, done.result()))
            return
        if isinstance(step, Message):
            write(rpc.encode_response(request.serial, method, step.SerializeToString()))
        elif step == STANDBY:
            text = "the master is standby now"
            write(rpc.encode_failure(request.serial, rpc.ERROR, "StandbyException", text))
        elif step == BROKEN:
            write(rpc.encode_response(request.serial, method, b"\xff\xff"))
        elif step == GARBAGE:
            write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        elif step == HANG_UP:
            self.transport.abort()
        else:
            assert step == HANG


class Master(Peer):
    """A master that takes each consumer and asks nothing of it, but for its script."""

    _events = 0

    def gives(self, client_id: str, group: str, *partitions: Partition) -> Message:
        """The answer to a heartbeat that has the consumer take partitions."""
        return self.event(EventType.CONNECT, client_id, group, *partitions)

    def event(
        self, kind: int, client_id: str, group: str, *partitions: Partition, number: int = 0
    ) -> Message:
        """The answer to a heartbeat that has an event in it."""
        Master._events += 1
        event = EventProto(
            rebalanceId=number or Master._events,
            opType=kind,
            status=0,
            subscribeInfo=[str(SubscribeInfo(client_id, group, one)) for one in partitions],
        )
        return cast(Message, accept(Method.CONSUMER_HEARTBEAT_C2M, event=event))

    def assigns(self, *partitions: Partition, kind: int = EventType.CONNECT) -> None:
        """Have the next heartbeat's consumer take these."""
        self.orders((kind, partitions))

    def orders(self, *orders: tuple[int, tuple[Partition, ...]]) -> None:
        """Have the next heartbeats answered with events, one each."""
        steps: list[Step] = []
        for kind, partitions in orders:

            def step(
                request: Any, kind: int = kind, partitions: tuple[Partition, ...] = partitions
            ) -> Message:
                return self.event(kind, request.clientId, request.groupName, *partitions)

            steps.append(step)
        steps.append(cast(Message, accept(Method.CONSUMER_HEARTBEAT_C2M)))
        self.plays(Method.CONSUMER_HEARTBEAT_C2M, *steps)


def message(
    number: int, body: bytes = b"body", *, kind: str | None = None, damaged: bool = False
) -> TransferedMessage:
    """A message as brokers send it."""
    payload, flag = encode(body, message_type=kind)
    checksum = crc32(payload) & 0x7FFFFFFF
    return TransferedMessage(
        messageId=number, checkSum=checksum ^ damaged, payLoadData=payload, flag=flag
    )


class Broker(Peer):
    """A broker whose partitions have messages, in packs of one get each.

    It keeps what a broker keeps of a consumer: the offset that is committed, and what is pending.
    """

    def __init__(self, broker_id: int = 1) -> None:
        super().__init__()
        self.broker_id = broker_id
        self.packs: dict[str, list[list[TransferedMessage]]] = defaultdict(list)
        self.committed: dict[str, int] = defaultdict(int)  # packs
        self.pending: dict[str, int] = defaultdict(int)
        self.owners: dict[str, str] = {}
        self.answer_fields: dict[str, Any] = {}  # of the answers to gets

    def partition(self, number: int = 0, topic: str = "orders") -> Partition:
        return Partition(BrokerInfo(self.broker_id, "127.0.0.1", self.port), topic, number)

    def stores(self, partition: Partition, *packs: list[TransferedMessage]) -> None:
        self.packs[self._key(partition.topic, partition.partition_id)] += packs

    def committed_of(self, partition: Partition) -> int:
        """Packs of a partition that are committed."""
        return self.committed[self._key(partition.topic, partition.partition_id)]

    @staticmethod
    def _key(topic: str, number: int) -> str:
        return f"{topic}:{number}"

    def usually(self, method: Method, request: Any) -> Step:
        if method == Method.CONSUMER_HEARTBEAT_C2B:
            return cast(Message, accept(method))
        key = self._key(request.topicName, request.partitionId)
        if method == Method.CONSUMER_REGISTER_C2B:
            return self._register(key, request)
        if self.owners.get(key) != request.clientId:
            return refuse(method, Code.HB_NO_NODE)
        if method == Method.GET_MESSAGES_C2B:
            return self._get(key, request)
        if request.lastPackConsumed:
            self.committed[key] += self.pending[key]
        self.pending[key] = 0
        return cast(
            Message,
            accept(
                method, currOffset=self.committed[key] * 28, maxOffset=len(self.packs[key]) * 28
            ),
        )

    def _register(self, key: str, request: RegisterRequestC2B) -> Message:
        method = Method.CONSUMER_REGISTER_C2B
        if request.opType == OpType.UNREGISTER:
            if self.owners.pop(key, None) is None:
                return refuse(method, Code.HB_NO_NODE)
            if request.readStatus == 0:
                self.committed[key] += self.pending[key]
        else:
            self.owners[key] = request.clientId
            if request.HasField("currOffset"):
                self.committed[key] = request.currOffset // 28
        self.pending[key] = 0
        offset, most = self.committed[key] * 28, len(self.packs[key]) * 28
        return cast(Message, accept(method, currOffset=offset, maxOffset=most))

    def _get(self, key: str, request: GetMessageRequestC2B) -> Message:
        if request.lastPackConsumed:
            self.committed[key] += self.pending[key]
        self.pending[key] = 0
        at = self.committed[key]
        if at >= len(self.packs[key]):
            return refuse(Method.GET_MESSAGES_C2B, Code.NOT_FOUND)
        self.pending[key] = 1
        return cast(
            Message,
            accept(
                Method.GET_MESSAGES_C2B,
                messages=self.packs[key][at],
                currOffset=at * 28,
                maxOffset=len(self.packs[key]) * 28,
                **self.answer_fields,
            ),
        )


@asynccontextmanager
async def opened(*peers: Peer, ssl: Any = None) -> AsyncIterator[None]:
    """Serve until the block ends."""
    try:
        for peer in peers:
            await peer.open(ssl)
        yield
    finally:
        for peer in peers:
            if peer.port:
                await peer.close()
