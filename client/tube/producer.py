"""Sends messages to a TubeMQ cluster.

`TubeProducer.submit` is the hot path: no task, no await, one future per message. `send` adds
retries at other partitions, which must wait.

Only the message differs between the requests of a partition (SendMessageRequestP2B), so the rest
is encoded once: a head with client and partition, and a tail with address and token. The tests
compare the result with protobuf's own.
"""

import asyncio
import ipaddress
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self, Unpack, cast

from google.protobuf.message import DecodeError

from mq.client.errors import BadAnswer, ClientError, MQError
from mq.client.options import refuse, take
from mq.client.transport.tasks import Closing
from mq.client.tube.connection import NotConnected
from mq.client.tube.errors import TubeError, for_code
from mq.client.tube.masters import Masters
from mq.client.tube.membership import Member
from mq.client.tube.producer_link import ProducerLink
from mq.client.tube.producer_options import TubeProducerKeywords, TubeProducerOptions
from mq.client.tube.routing import Lane, Routing
from mq.client.tube.service import TubeService
from mq.protocol.tube import payload
from mq.protocol.tube.codes import Code, Method
from mq.protocol.tube.errors import IllegalName, MalformedRpc, RemoteFailure
from mq.protocol.tube.messages import (
    AuthorizedInfo,
    SendMessageRequestP2B,
    SendMessageResponseB2P,
    parse,
)
from mq.protocol.tube.names import check_topic
from mq.protocol.tube.rpc import varint
from mq.protocol.tube.strings import Partition

log = logging.getLogger(__name__)

NO_CHECKSUM = -1

# How long a signed token is used: brokers check that it is fresh.
_TOKEN_SECONDS = 5.0

# Refusals after which another partition, perhaps at another broker, may accept the message. A
# stopping broker is not among them: when the original answers with ServiceStoppingException it
# continues and stores the message (NettyRpcServer's RpcProtocol.handleRequest), which would be
# stored twice.
_ELSEWHERE = frozenset(
    {Code.FORBIDDEN, Code.SERVER_RECEIVE_OVERFLOW, Code.SERVICE_UNAVAILABLE, Code.MOVED}
)


def head(client_id: str, topic: str, partition_id: int) -> bytes:
    """Return the start of a client's requests to a partition."""
    return SendMessageRequestP2B(
        clientId=client_id, topicName=topic, partitionId=partition_id
    ).SerializePartialToString()


def tail(address: int, info: AuthorizedInfo) -> bytes:
    """Return the end of requests; ``address`` is this machine's IPv4 address as a signed number."""
    # The fields of a message may be in any order: the address follows type and time.
    return SendMessageRequestP2B(sentAddr=address, authInfo=info).SerializePartialToString()


def send_request(
    head: bytes,
    payload: bytes,
    flag: int,
    checksum: int,
    message_type: str | None,
    message_time: str | None,
    tail: bytes,
) -> bytes:
    """Return the request that stores a payload; with NO_CHECKSUM the broker does not verify it."""
    length = varint(len(payload))
    checked = varint(checksum & 0xFFFFFFFFFFFFFFFF)
    more = b""
    if message_type is not None:
        raw = message_type.encode()
        more = b"\x42%b%b" % (varint(len(raw)), raw)
    if message_time is not None:
        raw = message_time.encode()
        more += b"\x4a%b%b" % (varint(len(raw)), raw)
    return b"%b\x22%b%b\x28%b\x30%b%b%b" % (
        head,
        length,
        payload,
        varint(flag),
        checked,
        more,
        tail,
    )


class TubeSendResult(NamedTuple):
    """Where a message is stored."""

    message_id: int
    partition: Partition
    append_time: int | None = None  # ms since 1970; older brokers do not return these two
    append_offset: int | None = None


class TubeProducer:
    """Sends messages to topics that it has published. An async context manager.

        async with TubeProducer("127.0.0.1:8715", ["orders"]) as producer:
            result = await producer.send("orders", b"...", message_type="new")

    `send` raises TubeError with the code of a broker, or of this client: 440 to 445 for an invalid
    message, 405 and 421 if no more messages may be sent for now; ConnectError and RequestTimeout
    (the message may have been stored), BadAnswer, ClientError, and ValueError for invalid
    attributes.
    """

    def __init__(
        self,
        masters: str | Sequence[str],
        topics: str | Iterable[str] = (),
        options: TubeProducerOptions | None = None,
        *,
        service: TubeService | None = None,
        **keywords: Unpack[TubeProducerKeywords],
    ) -> None:
        """`masters` are "host:port", several separated by commas; `service` is a shared one.

        `topics` are published when the producer opens; a string is one topic. `options`, and
        keywords that name its fields, configure the producer. Raises ClientError for invalid
        arguments.
        """
        given = cast("dict[str, Any]", keywords)
        self.options = options = take(options or TubeProducerOptions(), given)
        refuse(self, given)
        self._service = service or TubeService()
        self._owns_service = service is None
        self._masters = Masters(masters)
        self._member = Member(self._service, options)
        self._routing: Routing | None = None
        self._link: ProducerLink | None = None
        self._topics = _checked(topics)
        self._index = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tail = b""
        self._tail_until = 0.0
        self._sends: set[asyncio.Future[TubeSendResult]] = set()
        self._beating: asyncio.Task[None] | None = None
        self._opening = asyncio.Lock()
        self._close_once = Closing()
        self._closed = False

    @property
    def client_id(self) -> str:
        return self._member.client_id

    @property
    def topics(self) -> list[str]:
        """The published topics."""
        return sorted(self._topics)

    async def open(self) -> None:
        """Register at the active master, and fetch the routes of the topics. Safe to call again.

        Raises MQError if no master accepts the producer; nothing is left running then, and it may
        be called again.
        """
        async with self._opening:
            if self._link is None:
                await self._open()

    async def _open(self) -> None:
        if self._closed:
            raise ClientError("the producer was closed")
        self._loop = loop = asyncio.get_running_loop()
        if self._owns_service:
            await self._service.open()
        self._index = self._service.add(self)
        try:
            await self._service.names.watch(self._masters.hosts)
            self._routing = routing = Routing(self.options, loop.time)
            self._member.name(self._index, self._masters.current, "PRODUCER")
            link = ProducerLink(
                self._member, self._masters, self._topics, routing, self._forget_tail
            )
            await link.register()
            if self._topics:
                await link.beat()
            if link.error is not None:
                raise link.error
            if self._closed:
                raise ClientError("the producer was closed before it was open")
        except BaseException:
            self._service.remove(self._index)
            # the closed service cannot be reopened; a retry uses another one
            if self._owns_service:
                closed, self._service = self._service, TubeService()
                self._member = Member(self._service, self.options)
                await closed.close()
            raise
        self._link = link
        self._beating = self._service.keep_task(link.run())

    async def close(self) -> None:
        """Wait for sends in flight, and unregister. Safe to call again."""
        await self._close_once.run(self._close)

    async def _close(self) -> None:
        self._closed = True
        link, self._link = self._link, None
        if link is None:
            return
        if self._sends:
            await asyncio.wait(self._sends, timeout=self.options.close_wait)
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.wait([self._beating])
        try:
            async with asyncio.timeout(self.options.close_wait):
                await link.close()
        except (MQError, TimeoutError) as error:
            log.warning("%s: cannot unregister at the master: %s", self.client_id, error)
        self._service.remove(self._index)
        if self._owns_service:
            await self._service.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def publish(self, *topics: str) -> None:
        """Publish more topics, and fetch their routes.

        `partitions` shows whether they exist. Raises ClientError for an invalid topic, and MQError
        if no master answers; they are published nevertheless, with the next heartbeat.
        """
        self._topics.update(_checked(topics))
        link = self._opened()
        await link.beat()
        if link.error is not None:
            raise link.error

    def partitions(self, topic: str) -> list[Partition]:
        """Return the writable partitions of a published topic; empty if none is known."""
        self._opened()
        assert self._routing is not None
        return self._routing.partitions(topic)

    async def send(
        self,
        topic: str,
        body: bytes,
        *,
        attributes: Mapping[str, str] | None = None,
        message_type: str | None = None,
        message_time: str | None = None,
    ) -> TubeSendResult:
        """Send a message, and wait until a broker has stored it. Raises what the class documents.

        Args:
            attributes: texts without "," and "=" that are sent with it.
            message_type: the type that consumers filter by: letters, digits, underscores.
            message_time: a minute, "yyyyMMddHHmm".
        """
        left = self.options.retries
        while True:
            try:
                return await self.submit(
                    topic,
                    body,
                    attributes=attributes,
                    message_type=message_type,
                    message_time=message_time,
                )
            except TubeError as error:
                if left == 0 or error.code not in _ELSEWHERE:
                    raise
            except NotConnected:
                if left == 0:
                    raise
            left -= 1

    def submit(
        self,
        topic: str,
        body: bytes,
        *,
        attributes: Mapping[str, str] | None = None,
        message_type: str | None = None,
        message_time: str | None = None,
        partition: Partition | None = None,
    ) -> "asyncio.Future[TubeSendResult]":
        """Send a message without waiting; the future gets the result or the error of `send`.

        It is sent to `partition` if given; messages submitted to one partition are sent in order.
        Nothing is retried. Errors that are known at once are raised.
        """
        self._opened()
        routing = self._routing
        assert routing is not None and self._loop is not None
        self._check(topic, body)
        data, flag = payload.encode(body, attributes, message_type, message_time)
        lane = routing.choose(topic) if partition is None else routing.lane(partition)
        limit = routing.limit(topic)
        if len(data) > limit:
            _check_size(data, flag, len(body), limit)
        if not lane.head:
            number = lane.partition.partition_id
            lane.head = head(self.client_id, topic, number)
        if self._loop.time() >= self._tail_until:
            self._renew_tail()
        request = send_request(
            lane.head,
            data,
            flag,
            payload.checksum(data) if self.options.checksum else NO_CHECKSUM,
            message_type and message_type.strip(),
            message_time and message_time.strip(),
            self._tail,
        )
        return self._submit(lane, request)

    def _submit(self, lane: Lane, request: bytes) -> "asyncio.Future[TubeSendResult]":
        options, routing = self.options, self._routing
        assert routing is not None
        broker = lane.broker
        connection = broker.connection
        if connection is None or connection.has_ended:
            connection = broker.connection = self._service.connection(
                broker.address, connect_timeout=options.connect_timeout, tls=options.tls
            )

        def read(data: bytes) -> TubeSendResult:
            return _result(data, lane, connection.address)

        def raised(failure: RemoteFailure) -> TubeError:
            return TubeError(Code.RECEIVED_EXCEPTION, str(failure), connection.address)

        sent = connection.request(Method.SEND_MESSAGE_P2B, request, options.timeout, read, raised)
        routing.sent(lane)
        self._sends.add(sent)
        sent.add_done_callback(lambda future: self._ended(future, lane))
        return sent

    def _ended(self, future: "asyncio.Future[TubeSendResult]", lane: Lane) -> None:
        self._sends.discard(future)
        routing = self._routing
        assert routing is not None
        error = None if future.cancelled() else future.exception()
        if future.cancelled():
            routing.abandoned(lane)
        elif error is None:
            routing.answered(lane, Code.SUCCESS)
        elif isinstance(error, TubeError) and error.code != Code.RECEIVED_EXCEPTION:
            routing.answered(lane, error.code)
        else:
            routing.failed(lane, link=isinstance(error, NotConnected))

    def _check(self, topic: str, body: bytes) -> None:
        """Raise TubeError for an invalid message, with the original's codes."""
        if body is None:
            raise TubeError(Code.PARAMETER_MSG_NULL, "there is no message")
        if not topic.strip():
            raise TubeError(Code.PARAMETER_MSG_TOPIC_BLANK, "the topic is blank")
        if not body:
            raise TubeError(Code.PARAMETER_MSG_BODY_EMPTY, "the body is empty")
        if topic not in self._topics:
            text = f"topic {topic} is not published: publish it first"
            raise TubeError(Code.PARAMETER_MSG_TOPIC_UNPUBLISHED, text)

    def _opened(self) -> ProducerLink:
        if self._link is None:
            if self._closed:
                raise TubeError(Code.CLIENT_SHUTDOWN, "the producer was closed")
            raise ClientError("the producer is not open: open it first")
        return self._link

    def _forget_tail(self) -> None:
        self._tail_until = 0.0

    def _renew_tail(self) -> None:
        """Create and sign the end of requests."""
        assert self._loop is not None
        address = int.from_bytes(_ipv4(self._member.host), "big", signed=True)
        self._tail = tail(address, self._member.identity.for_broker())
        self._tail_until = self._loop.time() + _TOKEN_SECONDS


def _checked(topics: str | Iterable[str]) -> dict[str, None]:
    named = (topics,) if isinstance(topics, str) else topics
    try:
        return dict.fromkeys(check_topic(topic) for topic in named)
    except IllegalName as error:
        raise ClientError(str(error)) from None


def _check_size(data: bytes, flag: int, body: int, limit: int) -> None:
    """Raise TubeError if body and attributes, in characters, exceed the limit."""
    _, attributes = payload.decode(data, flag)
    size = body + len(attributes)
    if size > limit:
        text = f"body and attributes have {size} bytes: {limit} are allowed (maxMsgSizeInMB)"
        raise TubeError(Code.PARAMETER_MSG_OVER_MAX_LENGTH, text)


def _ipv4(host: str) -> bytes:
    """Return an IPv4 address as four bytes; zeros if it is not one."""
    try:
        return ipaddress.IPv4Address(host).packed
    except ValueError:
        return bytes(4)


def _result(data: bytes, lane: Lane, address: str) -> TubeSendResult:
    """Decode an answer. Raises TubeError for a refusal, BadAnswer if it has no id."""
    try:
        answer = SendMessageResponseB2P.FromString(data)
        if answer.success and answer.messageId:  # the remaining fields have no text to check
            return TubeSendResult(
                answer.messageId,
                lane.partition,
                answer.appendTime if answer.HasField("appendTime") else None,
                answer.appendOffset if answer.HasField("appendOffset") else None,
            )
        answer = parse(SendMessageResponseB2P, data)
    except (DecodeError, MalformedRpc) as error:
        raise BadAnswer(address, str(error)) from None
    if not answer.success:
        raise for_code(answer.errCode, answer.errMsg, address)
    text = answer.errMsg
    if not (text.lstrip("-").isdecimal() and text.isascii() and len(text) <= 20):
        raise BadAnswer(address, f"{text[:80]!r} is not the id of a message")
    return TubeSendResult(int(text), lane.partition)
