"""Sends that are not simply appended to the queue that they name.

A delayed message waits under another topic, and so does a half message until its transaction ends.
A retry that has failed too often becomes a dead letter, and a message that a consumer sends back
(CONSUMER_SEND_MSG_BACK) is stored again for its group. These sends are rare compared with plain
sends, so they are built as objects.
"""

from collections.abc import Callable, Mapping

from mq.client.machine import random_ids
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.delivery.timer_request import name_withdrawn
from mq.daemons.broker.delivery.writer import MessageWriter, add_what_fits, check_length
from mq.daemons.broker.groups.group_table import Groups
from mq.daemons.broker.roles import check_takes_back
from mq.daemons.broker.send.born_host import born_address
from mq.daemons.broker.store import ConsumeQueue, MessageStore, Origin, StoreRefused
from mq.daemons.broker.topics.topic_table import Topics
from mq.daemons.broker.transactions.half_batches import ReadBatch
from mq.daemons.broker.transactions.service import Transactions
from mq.daemons.broker.verified_records import verified_record
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Refused
from mq.daemons.request_codes import serves
from mq.protocol import names
from mq.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.flags import Permission, SysFlag, TopicSysFlag
from mq.protocol.frame import encode
from mq.protocol.headers.send import ConsumerSendMsgBackRequestHeader, Letter
from mq.protocol.message import StoredMessage, decode_record
from mq.protocol.message_id import decode_offset_id
from mq.protocol.pop_receipt import normal_topic
from mq.protocol.properties import PropertyKey

DEAD_LETTER_QUEUES = 1  # DLQ_NUMS_PER_GROUP
# Clients from V3_4_9 on send their limit of redeliveries in the request.
_VERSION_WITH_LIMIT = 121
_FIRST_RETRY_LEVEL = 3
_MOST_RECONSUMED = (1 << 31) - 1  # the largest number that a record holds


class IndirectSends:
    """Stores messages under another topic than the one they were sent to."""

    def __init__(
        self,
        settings: BrokerSettings,
        topics: Topics,
        groups: Groups,
        store: MessageStore,
        writer: MessageWriter,
        transactions: Transactions,
        on_sent_back: Callable[[str, str], None] = lambda topic, group: None,
        check_read: Callable[[Command, Channel, str], None] = lambda *_: None,
    ) -> None:
        """``on_sent_back`` is called with the topic and the group of each message sent back.
        ``check_read`` raises Refused unless the sender of a request may read from a topic.
        """
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._store = store
        self._writer = writer
        self._transactions = transactions
        self._on_sent_back = on_sent_back
        self._check_read = check_read

    def send(
        self,
        fields: Mapping[str, str],
        queue: ConsumeQueue,
        properties: dict[str, str],
        body: bytes,
        sys_flag: int,
        channel: Channel,
    ) -> StoredMessage:
        """Store a message of SEND_MESSAGE_V2 that is delayed, prepared or a retry; returns it as
        stored.

        Raises Refused and StoreRefused.
        """
        name_withdrawn(properties, queue.topic)
        prepared = self._is_prepared(fields, properties, sys_flag)
        if not prepared:  # Java rewrites the properties of a half message, including WAIT
            properties.pop(PropertyKey.WAIT_STORE, None)
        properties[PropertyKey.CLUSTER] = self._settings.broker.broker_cluster_name
        message = StoredMessage(
            queue.topic,
            body,
            properties,
            queue_id=queue.queue_id,
            flag=int(fields[Letter.FLAG]),
            sys_flag=sys_flag,
            born_timestamp=int(fields[Letter.BORN_TIMESTAMP]),
            born_host=born_address(fields, channel),
            reconsume_times=int(fields.get(Letter.RECONSUME_TIMES) or 0),
        )
        if queue.topic.startswith(names.RETRY_PREFIX):
            self._bury_if_hopeless(message, fields)
        if prepared:
            self._transactions.prepare(message)
        else:
            self._writer.put_or_delay(message)
        return message

    def prepare_batch(
        self,
        queue: ConsumeQueue,
        common: dict[str, str],
        body: bytes,
        read: ReadBatch,
        origin: Origin,
    ) -> tuple[bytes, int]:
        """Like `Transactions.prepare_batch`, for batches that are allowed. Raises Refused, too."""
        if (
            common.get(PropertyKey.TRANSACTION_PREPARED) != "true"
            or PropertyKey.PRODUCER_GROUP not in common
        ):
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                "the system flag says that the messages of the batch are prepared, its properties "
                "TRAN_MSG and PGROUP do not",
            )
        self._check_transactions()
        return self._transactions.prepare_batch(queue, common, body, read, origin)

    def _check_transactions(self) -> None:
        config = self._settings.broker
        if config.reject_transaction_message:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{config.broker_ip1}] sending transaction message is forbidden",
            )

    def _is_prepared(
        self, fields: Mapping[str, str], properties: Mapping[str, str], sys_flag: int
    ) -> bool:
        """Whether a message is sent in a transaction. Raises Refused if it may not be.

        Clients before 4.6.1 keep TRAN_MSG in such messages when they send them back.
        """
        level = properties.get(PropertyKey.DELAY_LEVEL, "0")
        given_back = (
            int(fields.get(Letter.RECONSUME_TIMES) or 0) > 0 and level.isdigit() and int(level) > 0
        )
        if properties.get(PropertyKey.TRANSACTION_PREPARED, "").lower() != "true" or given_back:
            if sys_flag & SysFlag.TRANSACTION_MASK == SysFlag.TRANSACTION_PREPARED:
                raise Refused(
                    ResponseCode.MESSAGE_ILLEGAL,
                    "the system flag says that the message is prepared, TRAN_MSG that it is not",
                )
            return False
        self._check_transactions()
        return True

    def _bury_if_hopeless(self, message: StoredMessage, fields: Mapping[str, str]) -> None:
        """Move a retry that has failed too often to the dead letters of its group.

        Source: SendMessageProcessor.handleRetryAndDLQ.
        """
        group = message.topic[len(names.RETRY_PREFIX) :]
        config = self._group(group)
        limit = int(fields.get(Letter.MAX_RECONSUME_TIMES) or config.retry_max_times)
        if message.reconsume_times < limit:
            return
        # Like Java, this does not check the write permission: there is no other place for the
        # message.
        topic = self._topics.create_internal(names.dead_letter_topic(group), DEAD_LETTER_QUEUES)
        message.topic = topic.topic_name
        message.queue_id = random_ids.randrange(DEAD_LETTER_QUEUES)
        message.properties.pop(PropertyKey.DELAY_LEVEL, None)
        add_what_fits(message.properties, {PropertyKey.DELAY_LEVEL: "0"})

    @serves(RequestCode.CONSUMER_SEND_MSG_BACK)
    def send_back(self, command: Command, channel: Channel) -> None:
        """Redeliver a message that a consumer could not consume, or make it a dead letter.

        Source: SendMessageProcessor.asyncConsumerSendMsgBack.
        """
        check_takes_back(self._settings)
        header = command.read_header(ConsumerSendMsgBackRequestHeader)
        group = self._group(header.group)
        config = self._settings.broker
        if not config.broker_permission & Permission.WRITE:
            raise Refused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{config.broker_ip1}] sending message is forbidden",
            )
        if group.retry_queue_nums <= 0:  # this group has no retries
            channel.reply(command)
            return
        flag = TopicSysFlag.UNIT_SUB if header.unit_mode else 0
        retry = self._topic(names.retry_topic(header.group), group.retry_queue_nums, flag)
        message, origin = self._given(command, header, channel)
        limit = group.retry_max_times
        if command.version >= _VERSION_WITH_LIMIT and header.max_reconsume_times is not None:
            limit = header.max_reconsume_times
        queues = group.retry_queue_nums
        level = header.delay_level or _FIRST_RETRY_LEVEL + message.reconsume_times
        if message.reconsume_times >= limit or header.delay_level < 0:
            level = 0
        message.topic = retry.topic_name
        is_dead = not _say_where_from(message, origin, level) or level == 0
        if is_dead:
            message.topic = names.dead_letter_topic(header.group)
            queues = DEAD_LETTER_QUEUES
        message.queue_id = random_ids.randrange(queues)
        message.reconsume_times = min(message.reconsume_times + 1, _MOST_RECONSUMED)

        def stored(refusal: StoreRefused | None) -> None:
            if refusal is None:
                self._on_sent_back(origin, header.group)

        try:
            check_length(message.topic)
            if is_dead:
                self._topics.create_internal(message.topic, DEAD_LETTER_QUEUES)
            self._writer.put_or_delay(message, stored)
        except StoreRefused as refusal:
            raise Refused(refusal.code, refusal.remark) from None
        # with SYNC_MASTER a slave has the message before the group moves on
        if not command.is_one_way:
            self._store.appender.reply_when_stored(channel, encode(command.reply()))

    def _given(
        self, command: Command, header: ConsumerSendMsgBackRequestHeader, channel: Channel
    ) -> tuple[StoredMessage, str]:
        """The message that a group sends back, which it may read, and its original topic.

        Raises Refused. Java takes the record at any offset, so that a group can get messages of
        other topics, and a wrong message if a broker of the same name has another log now. After a
        refusal, Java's consumers send a copy of the message.
        """
        found = verified_record(self._store, header.offset)
        if found is None or names.is_internal_topic(found[1].topic):
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {header.offset}"
            )
        record, message = found
        if not _is_named(message, header):
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"the message at offset {header.offset} is not {header.origin_msg_id}: "
                "that was in another log",
            )
        topic = message.topic
        popped = normal_topic(topic, header.group)
        # %RETRY%a_b is the retry topic of group a for topic b when popping, or of group a_b.
        if popped != topic and topic.removeprefix(names.RETRY_PREFIX) not in self._groups.table:
            topic = popped
        self._check_read(command, channel, topic)
        try:
            message = decode_record(record, decompress=False, check_crc=True)
        # stored again, a damaged message would get a valid checksum
        except RemoteProtocolError as error:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"message at {header.offset}: {error}"
            ) from None
        # Only for records of a retry topic has a broker written or checked RETRY_TOPIC.
        if topic.startswith(names.RETRY_PREFIX):
            topic = message.properties.get(PropertyKey.RETRY_TOPIC) or topic
        return message, topic

    def _group(self, name: str) -> SubscriptionGroupConfig:
        group = self._groups.find(name)
        if group is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {name}"
            )
        return group

    def _topic(self, name: str, queues: int, sys_flag: int = 0) -> TopicConfig:
        topic = self._topics.create_internal(name, queues, sys_flag=sys_flag)
        if not topic.perm & Permission.WRITE:
            raise Refused(
                ResponseCode.NO_PERMISSION, f"the topic[{name}] sending message is forbidden"
            )
        return topic


def _is_named(message: StoredMessage, header: ConsumerSendMsgBackRequestHeader) -> bool:
    """Whether a message is the one that a consumer names, as far as its request shows.

    Java's consumers name the unique id, or the offset id of a message that has none
    (MessageClientExt). Only the offset of an offset id counts, because it may have a slave's
    address.
    """
    named = header.origin_msg_id
    if not named or message.sys_flag & SysFlag.INNER_BATCH:  # its messages have ids of their own
        return True
    ids = (PropertyKey.UNIQUE_KEY, PropertyKey.ORIGIN_MESSAGE_ID)
    if any(message.properties.get(name) == named for name in ids):
        return True
    try:
        return decode_offset_id(named).offset == header.offset
    except ValueError:
        return False


def _say_where_from(message: StoredMessage, origin: str, level: int) -> bool:
    """Set the properties of a message that was sent back, as far as there is room; False if its
    topic, which consumers of a retry need, does not fit.
    """
    properties = message.properties
    added = {
        PropertyKey.RETRY_TOPIC: origin,
        PropertyKey.ORIGIN_MESSAGE_ID: properties.get(PropertyKey.ORIGIN_MESSAGE_ID)
        or message.offset_id,
        PropertyKey.DELAY_LEVEL: str(level),
        PropertyKey.WAIT_STORE: "false",
    }
    for name in added:
        properties.pop(name, None)
    add_what_fits(properties, added)
    if PropertyKey.RETRY_TOPIC in properties:
        return True
    properties.pop(PropertyKey.DELAY_LEVEL, None)  # a dead letter is not delayed
    return False
