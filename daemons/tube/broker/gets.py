"""Gets of consumers (method 17).

Data in the page cache is read on the event loop; disk reads are in threads, a few at a time. A
partition has one get at a time: the pending offset belongs to it.
"""

import asyncio
import logging
from typing import NamedTuple

from mq.daemons.tube.broker.access import RequestError
from mq.daemons.tube.broker.answers import BadRecords, answer
from mq.daemons.tube.broker.consumers import Consumer
from mq.daemons.tube.broker.offsets import TooManyOffsets
from mq.daemons.tube.broker.serving import Serving, client_id, group_name
from mq.daemons.tube.broker.store.layout import INDEX_SIZE
from mq.daemons.tube.broker.store.reading import ReadRequest, ReadResult, ThreadRead, read
from mq.daemons.tube.broker.store.topic_store import TopicStore
from mq.daemons.tube.broker.topics import STATUS_SOFT_DELETE, Topic
from mq.daemons.tube.rpc import Call
from mq.protocol.tube.codes import Code
from mq.protocol.tube.messages import GetMessageRequestC2B, GetMessageResponseB2C

log = logging.getLogger(__name__)

MAX_TRANSFER = 1024 * 1024  # DataStoreUtils.MAX_MSG_TRANSFER_SIZE
_LEAST_SCAN, _MOST_SCAN = 8000, 13_500  # records of the index
_FILTER_SCANS = 3  # times as many, if a filter skips some
_LITTLE_LEFT = 10  # times the scan of a filter: with less than that left, gets are less frequent

# With a lag of more than this, a consumer gets half as much (defaultDeduceReadSize, doubled).
_FAR_BEHIND = 14 << 30

# Simultaneous reads in threads: each holds its data until its consumer has received it.
_THREADS = 8


class _Get(NamedTuple):
    """A get that may be answered."""

    call: Call
    consumer: Consumer
    store: TopicStore
    manual: bool
    wish: ReadRequest
    max_data: int  # when it arrived


class Gets:
    """Answers gets; the order of checks is that of BrokerServiceServer.getMessagesC2B."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._threads = asyncio.Semaphore(_THREADS)
        self._tasks: set[asyncio.Task[None]] = set()
        self._being_read: set[tuple[str, str, int]] = set()
        self.messages = 0
        self.bytes = 0
        self.from_disk = 0
        self.bad_records = 0
        self.refused: dict[int, int] = {}  # by code

    def handle(self, call: Call) -> None:
        try:
            get = self._prepare(call)
            try:
                found = read(get.store, get.wish)
            except BlockingIOError:
                self._read_later(get)
                return
            self._answer(get, found)
        except RequestError as denied:
            self._refuse(call, denied)
        except OSError as error:
            self._failed(call, error)

    async def close(self) -> None:
        """Wait for reads in threads. Idempotent."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # ------------------------------------------------------------------------------------------

    def _prepare(self, call: Call) -> _Get:
        """Raises Denied."""
        serving = self._serving
        message: GetMessageRequestC2B = call.message
        if not serving.is_started or serving.reads.is_stopped:
            raise RequestError(Code.SERVICE_UNAVAILABLE, "Read StoreService temporary unavailable!")
        client = client_id(message.clientId)
        group = group_name(message.groupName)
        topic = serving.need_topic(message.topicName)
        partition = message.partitionId
        consumer = self._need_consumer(client, group, topic, partition, call.host)
        if topic.status > STATUS_SOFT_DELETE:
            raise RequestError(
                Code.FORBIDDEN,
                f"[Partition Closed] Partition has been closed, for topic={topic.name},"
                f"partitionId={partition} of Broker={serving.broker_id}",
            )
        store = serving.need_store(topic, partition)
        if consumer.key in self._being_read:
            raise RequestError(Code.NOT_FOUND, "a get of this partition is being answered")
        store.write_cached()
        offset = self._begin(consumer, store, message)
        limit = self._allowed(consumer, store, message)
        scan = _scan(serving.index_count * topic.partitions, consumer)
        wish = ReadRequest(partition, offset, consumer.codes, limit, scan)
        return _Get(call, consumer, store, message.manualCommitOffset, wish, store.max_data)

    def _need_consumer(
        self, client: str, group: str, topic: Topic, partition: int, host: str
    ) -> Consumer:
        """Return the client's registration of the partition, renewed. Raises Denied without one."""
        serving = self._serving
        consumer = serving.consumers.get(group, topic.name, partition)
        if consumer is None:
            raise RequestError(
                Code.HB_NO_NODE,
                f"UnRegistered Consumer:{client}, you have to register firstly!",
            )
        if consumer.client_id != client:
            raise RequestError(
                Code.DUPLICATE_PARTITION,
                f"[Duplicated Request] Partition={consumer.name} of Broker={serving.broker_id} "
                f"has been consumed by {consumer.client_id};Current consumer {client}",
            )
        serving.access.check_origin(consumer.address, host)
        if not serving.consumers.renew(consumer):
            raise RequestError(Code.HB_NO_NODE, f"the registration of {client} is over")
        return consumer

    def _begin(self, consumer: Consumer, store: TopicStore, message: GetMessageRequestC2B) -> int:
        """Return the start of the get in the index. Raises Denied."""
        try:
            offset, is_there = self._serving.offsets.next(
                consumer.group,
                (consumer.topic, consumer.partition),
                manual=message.manualCommitOffset,
                consumed=message.lastPackConsumed,
                bounds=(store.min_index, store.max_index),
                lowers=self._serving.lowers_offsets,
            )
        except TooManyOffsets as many:
            raise RequestError(Code.SERVICE_UNAVAILABLE, str(many)) from None
        if not is_there:
            raise RequestError(Code.NOT_FOUND, "The request offset reached maxOffset!")
        return offset

    def _allowed(self, consumer: Consumer, store: TopicStore, message: GetMessageRequestC2B) -> int:
        """Return the number of bytes that it may read. Raises Denied."""
        serving = self._serving
        most = serving.transfer_size
        allowed = consumer.allowed(serving.rules, store.max_data, most, message.escFlowCtrl)
        if not allowed:
            raise _Limited(consumer.interval_ms)
        if store.max_data - consumer.last_data >= _FAR_BEHIND and consumer.last_data >= 0:
            return min(allowed, most // 2)
        return allowed

    # answering --------------------------------------------------------------------------------

    def _answer(self, get: _Get, found: ReadResult) -> None:
        """Raises Denied and OSError."""
        consumer = get.consumer
        last = found.last if found.last > 0 else max(consumer.last_data, 0)
        if found.bad:
            self._found_bad(get.store, found.bad)
        frame, count = self._frame(get, found, get.max_data - last)
        self._serving.offsets.read(
            consumer.group,
            (consumer.topic, consumer.partition),
            found.scanned,
            manual=get.manual,
            empty=not count,
        )
        consumer.has_read(last, found.size)
        self.messages += count
        self.bytes += found.size
        get.call.answer_frame(frame)

    def _frame(self, get: _Get, found: ReadResult, lag: int) -> tuple[bytes, int]:
        serial, offset = get.call.request.serial, get.wish.offset
        left = get.store.max_index - offset - found.scanned
        slow = bool(
            get.consumer.codes is not None and found.scanned and left < _LITTLE_LEFT * get.wish.scan
        )
        most = get.store.max_index
        wanted = get.wish.partition, get.wish.codes
        try:
            made = answer(serial, found.pieces, offset, lag, slow, most, wanted)
            if made[1] != found.records:  # the index does not match
                raise BadRecords
            return made
        except BadRecords:
            pieces = self._good_records(get)
            return answer(serial, pieces, offset, lag, slow, most, wanted)

    def _good_records(self, get: _Get) -> list[bytes]:
        """Return the valid ones of the same records, each by itself, since one may have a wrong
        length.
        """
        wish = get.wish._replace(joined=False)
        pieces = []
        for piece in read(get.store, wish, wait=True).pieces:
            try:
                count = answer(0, [piece], 0, 0, False, 0, (wish.partition, wish.codes))[1]
            except BadRecords:
                count = 0
            if count:
                pieces.append(piece)
            # also records that the index assigns to another partition: they are not delivered twice
            else:
                self._found_bad(get.store, 1)
        return pieces

    def _found_bad(self, store: TopicStore, count: int) -> None:
        self.bad_records += count
        log.error(
            "%s: %d records are damaged, and left out of what is read", store.key, count,
            extra={"failure": f"records of {store.key}"},
        )  # fmt: skip

    def _read_later(self, get: _Get) -> None:
        self._being_read.add(get.consumer.key)
        task = asyncio.get_running_loop().create_task(self._read_in_thread(get))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _read_in_thread(self, get: _Get) -> None:
        """Read from the disk, and answer if the consumer still has the partition."""
        call, consumer = get.call, get.consumer
        try:
            found = await self._in_thread(get)
            if self._serving.consumers.get(*consumer.key) is not consumer:
                raise RequestError(
                    Code.HB_NO_NODE,
                    f"UnRegistered Consumer:{consumer.client_id}, you have to register firstly!",
                )
            key = consumer.topic, consumer.partition
            if self._serving.offsets.at(consumer.group, key, manual=get.manual) != get.wish.offset:
                raise RequestError(Code.MOVED, "the offset was set while it was read from")
            self._answer(get, found)
        except RequestError as denied:
            self._refuse(call, denied)
        except OSError as error:
            if get.store.closed:  # the topic was removed meanwhile: not a disk error
                self._refuse(call, RequestError(Code.FORBIDDEN, f"{get.store.key} has been closed"))
            else:
                self._failed(call, error)
        except Exception as error:
            log.exception("a read in a thread failed")
            self._refuse(call, RequestError(Code.INTERNAL_SERVER_ERROR, f"{type(error).__name__}"))
        finally:
            self._being_read.discard(consumer.key)

    async def _in_thread(self, get: _Get) -> ReadResult:
        async with self._threads:
            self.from_disk += 1
            reading = ThreadRead(get.store, get.wish)
            running = asyncio.ensure_future(asyncio.to_thread(reading.run))
            running.add_done_callback(lambda _: reading.end())  # also without a waiting client
            return await asyncio.shield(running)

    def _failed(self, call: Call, error: OSError) -> None:
        self._serving.reads.failed()
        log.error("a get failed: %s", error, extra={"failure": "reads"})
        text = f"Get message from file failure : {error.strerror}"
        self._refuse(call, RequestError(Code.INTERNAL_SERVER_ERROR, text))

    def _refuse(self, call: Call, denied: RequestError) -> None:
        self.refused[denied.code] = self.refused.get(denied.code, 0) + 1
        wait = denied.wait_ms if isinstance(denied, _Limited) else 0
        call.answer(
            GetMessageResponseB2C(
                success=False,
                errCode=denied.code,
                errMsg=str(denied),
                currOffset=-1,
                minLimitTime=wait,
                escFlowCtrl=False,
                currDataDlt=-1,
            )
        )


class _Limited(RequestError):
    """A get before its time."""

    def __init__(self, wait_ms: int) -> None:
        super().__init__(Code.SERVER_CONSUME_SPEED_LIMIT, "RpcServer consume speed limit!")
        self.wait_ms = wait_ms


def _scan(count: int, consumer: Consumer) -> int:
    """Return the bytes of the index that a get scans (MessageStore's fileMaxIndexReadSize)."""
    records = max(_LEAST_SCAN, min(count, _MOST_SCAN))
    return records * INDEX_SIZE * (1 if consumer.codes is None else _FILTER_SCANS)
