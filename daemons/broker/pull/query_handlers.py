"""Finding messages: by offset, by key, and through the entries of a queue."""

from base64 import b64encode
from collections.abc import Callable

from mq.daemons.broker.clients.registry import Consumers
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.filters.properties import is_ruled_out
from mq.daemons.broker.filters.table import ConsumerFilters, FilterData, is_tag_type
from mq.daemons.broker.store import MessageStore, Unit, query_by_key
from mq.daemons.broker.store.layout import EXTENSION_START, is_extension_address
from mq.daemons.broker.verified_records import verified_record
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Refused
from mq.daemons.request_codes import serves
from mq.protocol.bodies import ConsumeQueueData, QueryConsumeQueueResponseBody, SubscriptionData
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.fastjson import dumps
from mq.protocol.headers.query import (
    QueryConsumeQueueRequestHeader,
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    ViewMessageRequestHeader,
)
from mq.protocol.names import UNIQUE_KEY_QUERY
from mq.protocol.tags import ALL_TAGS

# Limit of entries per reply. Java sends up to one file of entries, 300,000; this limit keeps a
# reply far below the frame limit.
MOST_ENTRIES = 10_000


class QueryHandlers:
    """Finds messages.

    `check_read` raises Refused for a topic that may not be read. `reads_all` reports whether the
    sender of a request may read everything that is stored.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        consumers: Consumers,
        filters: ConsumerFilters,
        store: MessageStore,
        check_read: Callable[[Command, Channel, str], None] | None = None,
        reads_all: Callable[[Command, Channel], bool] = lambda *_: True,
    ) -> None:
        self._settings = settings
        self._consumers = consumers
        self._filters = filters
        self._store = store
        self._check_read = check_read
        self._reads_all = reads_all

    @serves(RequestCode.VIEW_MESSAGE_BY_ID)
    def view(self, command: Command, channel: Channel) -> Command:
        """The record at an offset of the commit log."""
        header = command.read_header(ViewMessageRequestHeader)
        record: bytes | None = None
        if self._check_read is None or self._reads_all(command, channel):
            record = self._store.record_at(header.offset)
        # Other clients get verified records only. Bytes in the body of a message may look like a
        # record with a made-up length, which would include the messages after it, whatever their
        # topic.
        elif (found := verified_record(self._store, header.offset)) is not None:
            record, message = found
            self._check_read(command, channel, message.topic)
        if record is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {header.offset}"
            )
        return command.reply(body=record)

    @serves(RequestCode.QUERY_MESSAGE)
    def by_key(self, command: Command, channel: Channel) -> Command:
        """Records of a topic that may have a key. The index stores hashes, so the client compares
        the keys.
        """
        header = command.read_header(QueryMessageRequestHeader)
        config = self._settings.store
        wanted = header.max_num
        if command.fields.get(UNIQUE_KEY_QUERY) == "true":
            wanted = config.default_query_max_num
        wanted = max(0, min(wanted, config.max_msgs_num_batch))
        timestamp, offset, records = query_by_key(
            self._store,
            header.topic,
            header.key,
            wanted,
            header.begin_timestamp,
            header.end_timestamp,
        )
        fields = QueryMessageResponseHeader(
            index_last_update_timestamp=timestamp, index_last_update_phyoffset=offset
        ).encode()
        if not records:
            return command.reply(
                ResponseCode.QUERY_NOT_FOUND,
                fields,
                remark="can not find message, maybe time range not correct",
            )
        return command.reply(fields=fields, body=b"".join(records))

    @serves(RequestCode.QUERY_CONSUME_QUEUE)
    def queue_entries(self, command: Command, channel: Channel) -> Command:
        """Entries of a consume queue, starting at an index."""
        header = command.read_header(QueryConsumeQueueRequestHeader)
        topic, queue_id = header.topic or "", header.queue_id
        if queue_id not in self._store.queues_of(topic):
            raise Refused(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
        body = QueryConsumeQueueResponseBody(
            max_queue_index=self._store.max_offset(topic, queue_id),
            min_queue_index=self._store.min_offset(topic, queue_id),
        )
        if header.consumer_group is not None:
            body.subscription_data = self._consumers.subscription(header.consumer_group, topic)
            if body.subscription_data is None:
                body.filter_data = f"{header.consumer_group}@{topic} is not online!"
            else:
                body.filter_data = self._filters.describe(topic, header.consumer_group)
        for index in range(header.index, header.index + min(header.count, MOST_ENTRIES)):
            entry = self._store.entries.at(topic, queue_id, index)
            if entry is None:
                break
            physical_offset, size, tags_code = entry
            data = ConsumeQueueData(
                physic_offset=physical_offset, physic_size=size, tags_code=tags_code
            )
            if is_extension_address(tags_code):
                unit = self._store.queue_unit(topic, queue_id, tags_code)
                group = header.consumer_group or ""
                _add_unit(data, unit, body.subscription_data, self._filters.get(topic, group))
            body.queue_data.append(data)
        if not body.queue_data:
            return command.reply(remark=f"Index {header.index} of {queue_id}@{topic} is not exist!")
        return command.reply(body=body.encode())


def _add_unit(
    data: ConsumeQueueData,
    unit: Unit | None,
    subscription: SubscriptionData | None,
    wanted: FilterData | None,
) -> None:
    """Add the queue extension's data of an entry, like AdminBrokerProcessor.queryConsumeQueue."""
    if unit is None:
        data.msg = f"Cq extend not exist!addr: {data.tags_code}"
        return
    plain: dict[str, object] = {
        "msgStoreTime": unit.store_timestamp,
        "size": EXTENSION_START.size + len(unit.bit_map),
        "tagsCode": unit.tags_code,
    }
    if unit.bit_map:
        plain = {"filterBitMap": b64encode(unit.bit_map).decode(), **plain}
        # BitsArray.toString: the last byte first, and a newline after each byte whose index is a
        # multiple of eight.
        data.bit_map = "".join(
            f"{byte:08b}" + ("\n" if number % 8 == 0 else "")
            for number, byte in reversed(list(enumerate(unit.bit_map)))
        )
    data.extend_data_json = dumps(plain).decode()
    if subscription is None:
        return
    if is_tag_type(subscription.expression_type):
        text = subscription.sub_string
        data.eval = text == ALL_TAGS or _tags_code(unit) in subscription.code_set
    else:
        data.eval = wanted is None or not is_ruled_out(unit, wanted)


def _tags_code(unit: Unit) -> int:
    """The tags code as Java compares it: its low 32 bits, signed (Long.intValue)."""
    return (unit.tags_code + (1 << 31)) % (1 << 32) - (1 << 31)
