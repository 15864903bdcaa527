"""Requests that the broker relays to the consumers of a group."""

import asyncio
import logging
from collections.abc import Iterable

from mq.daemons.broker.clients.registry import Client, Consumers
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.offsets.offset_table import ConsumerOffsets
from mq.daemons.broker.store import Boundary, MessageStore, offset_by_boundary
from mq.daemons.broker.topics.topic_table import Topics
from mq.daemons.broker.verified_records import verified_record
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Refused
from mq.daemons.request_codes import serves
from mq.protocol.bodies import (
    GetConsumerStatusBody,
    MessageQueue,
    MessageQueueForC,
    ResetOffsetBody,
    ResetOffsetBodyForC,
)
from mq.protocol.codes import LanguageCode, RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.headers.group import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
)
from mq.protocol.headers.offset import ResetOffsetRequestHeader
from mq.protocol.message_id import decode_offset_id
from mq.protocol.versions import version_name

log = logging.getLogger(__name__)

CALL_SECONDS = 10.0  # Broker2Client.callClient
STATUS_SECONDS = 5.0  # Broker2Client.getConsumeStatus
TO_THE_END = -1  # a timestamp that means the end of the queue
_VERSION_3_0_7_SNAPSHOT = 28


class RelayHandlers:
    """Relays requests of administrators to consumers."""

    def __init__(
        self,
        settings: BrokerSettings,
        topics: Topics,
        offsets: ConsumerOffsets,
        consumers: Consumers,
        store: MessageStore,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._offsets = offsets
        self._consumers = consumers
        self._store = store

    @serves(RequestCode.GET_CONSUMER_RUNNING_INFO)
    async def running_info(self, command: Command, channel: Channel) -> Command:
        """The running info of one consumer."""
        header = command.read_header(GetConsumerRunningInfoRequestHeader)
        # Only the decoded fields are relayed: the signature of the request is for this broker, not
        # for the consumer.
        passed = Command(command.code, header.encode())
        return await self._call(command, passed, header.consumer_group, header.client_id)

    @serves(RequestCode.CONSUME_MESSAGE_DIRECTLY)
    async def consume_directly(self, command: Command, channel: Channel) -> Command:
        """Have one consumer consume one stored message now."""
        header = command.read_header(ConsumeMessageDirectlyResultRequestHeader)
        try:
            physical = decode_offset_id(header.msg_id or "").offset
        except ValueError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"msgId: {error}") from None
        found = verified_record(self._store, physical)
        if found is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {physical}"
            )
        fields = {**header.encode(), "brokerName": self._settings.broker.broker_name}
        passed = Command(command.code, fields, found[0])
        return await self._call(command, passed, header.consumer_group, header.client_id or "")

    async def _call(self, asked: Command, passed: Command, group: str, client_id: str) -> Command:
        """Send a request to one consumer and relay its reply."""
        client = self._consumers.find(group, client_id)
        if client is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online"
            )
        try:
            answer = await client.channel.request(passed, CALL_SECONDS)
        except TimeoutError:
            raise Refused(
                ResponseCode.CONSUME_MSG_TIMEOUT,
                f"consumer <{group}> <{client_id}> Timeout: no answer within {CALL_SECONDS:g} s",
            ) from None
        except ConnectionError as error:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"invoke consumer <{group}> <{client_id}>: {error}"
            ) from None
        return asked.reply(answer.code, answer.fields, answer.body, remark=answer.remark)

    @serves(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)
    def reset_offset(self, command: Command, channel: Channel) -> Command:
        """Reset the consumers of a group to the offsets of a topic at a time; the group must be
        online.

        The consumers stop, take the new offsets and commit them; those commits change the broker's
        own table.
        """
        header = command.read_header(ResetOffsetRequestHeader)
        table = self._offsets_at(header)
        group = self._consumers.groups.get(header.group)
        if group is None:
            raise Refused(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {header.group} "
                f"Topic: {header.topic} Timestamp: {header.timestamp}",
            )
        passed = ResetOffsetRequestHeader(
            topic=header.topic, group=header.group, timestamp=header.timestamp
        ).encode()
        # The request of a C++ tool: its consumers cannot read a map with object keys.
        for_c = command.language == LanguageCode.CPP
        body = (_body_for_c(table) if for_c else ResetOffsetBody(offset_table=table)).encode()
        for client in group.clients.values():
            _check_version(client)  # like Java, after the clients before it have been notified
            if not client.channel.closed:
                client.channel.notify(
                    Command(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, passed, body)
                )
                log.info("%s resets offsets of %s in %s: notified %s", channel.remote, header.group,
                         header.topic, client.client_id)  # fmt: skip
        return command.reply(body=ResetOffsetBody(offset_table=table).encode())

    def _offsets_at(self, header: ResetOffsetRequestHeader) -> dict[MessageQueue, int]:
        config = self._topics.get(header.topic)
        if config is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                "[reset-offset] reset offset failed, no topic in this broker. "
                f"topic={header.topic}",
            )
        table = {}
        for queue_id in range(config.write_queue_nums):
            consumed = self._offsets.query(header.group, header.topic, queue_id)
            if consumed < 0:
                raise Refused(
                    ResponseCode.SYSTEM_ERROR, f"THe consumer group <{header.group}> not exist"
                )
            if header.timestamp == TO_THE_END:
                wanted = self._store.max_offset(header.topic, queue_id)
            else:
                # As in 5.5. With the nearest message, as in 4.9, a reset to a future time would
                # redeliver the last message.
                wanted = offset_by_boundary(
                    self._store, header.topic, queue_id, header.timestamp, Boundary.LOWER
                )
            wanted = max(0, wanted)
            # Without force a group only moves back, never past messages that it has not received.
            queue = MessageQueue(header.topic, self._settings.broker.broker_name, queue_id)
            table[queue] = wanted if header.is_force else min(wanted, consumed)
        return table

    @serves(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS)
    async def consumer_status(self, command: Command, channel: Channel) -> Command:
        """The offsets that each consumer of a group reports."""
        header = command.read_header(GetConsumerStatusRequestHeader)
        group = self._consumers.groups.get(header.group)
        if group is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"No Any Consumer online in the consumer group: [{header.group}]",
            )
        wanted = header.client_addr
        clients = []
        for client in group.clients.values():
            _check_version(client)
            if not wanted or client.client_id == wanted:
                clients.append(client)
        body = GetConsumerStatusBody(consumer_table=await _statuses(clients, header))
        return command.reply(body=body.encode())


def _check_version(client: Client) -> None:
    """Raises Refused for a client that does not support these requests (Broker2Client)."""
    if client.version < _VERSION_3_0_7_SNAPSHOT:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"the client does not support this feature. version={version_name(client.version)}",
        )


async def _statuses(
    clients: Iterable[Client], header: GetConsumerStatusRequestHeader
) -> dict[str, dict[MessageQueue, int]]:
    """The reply of each client by client id; clients that do not reply are left out."""
    fields = GetConsumerStatusRequestHeader(topic=header.topic, group=header.group).encode()

    async def status(client: Client) -> tuple[str, dict[MessageQueue, int] | None]:
        request = Command(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, fields)
        try:
            answer = await client.channel.request(request, STATUS_SECONDS)
            if answer.code == ResponseCode.SUCCESS and answer.body:
                body = GetConsumerStatusBody.decode(answer.body)
                return client.client_id, body.message_queue_table
        except (TimeoutError, ConnectionError, RemoteProtocolError) as error:
            log.warning("consumer %s sent no status: %s", client.client_id, error or "no reply")
        return client.client_id, None

    found = await asyncio.gather(*(status(client) for client in clients))
    return {client_id: table for client_id, table in found if table is not None}


def _body_for_c(table: dict[MessageQueue, int]) -> ResetOffsetBodyForC:
    return ResetOffsetBodyForC(
        offset_table=[
            MessageQueueForC(
                topic=queue.topic,
                broker_name=queue.broker_name,
                queue_id=queue.queue_id,
                offset=offset,
            )
            for queue, offset in table.items()
        ]
    )
