"""Replies of request-reply messaging, pushed to the client that waits for them."""

import logging
import time

from mq.client.machine import clock
from mq.daemons.broker.clients.registry import Producers
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.delivery.timer_request import name_withdrawn
from mq.daemons.broker.delivery.waiting import StoreResults, is_stored
from mq.daemons.broker.delivery.writer import MessageWriter
from mq.daemons.broker.send.targets import SendTargets
from mq.daemons.broker.store import StoreRefused
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Refused
from mq.daemons.request_codes import serves
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.flags import SysFlag
from mq.protocol.headers.send import (
    ReplyMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from mq.protocol.message import StoredMessage
from mq.protocol.message_id import encode_offset_id
from mq.protocol.properties import PropertyKey, decode, drop_brokers_own, encode

log = logging.getLogger(__name__)

PUSH_SECONDS = 10.0  # Broker2Client.callClient
_COMPRESSION = SysFlag.COMPRESSED | SysFlag.COMPRESSION_MASK

_Request = SendMessageRequestHeader | SendMessageRequestHeaderV2


class ReplyHandlers:
    """Serves replies of consumers. `host` is this broker's address as clients know it."""

    def __init__(
        self,
        settings: BrokerSettings,
        targets: SendTargets,
        producers: Producers,
        writer: MessageWriter,
        host: tuple[str, int],
    ) -> None:
        self._settings = settings
        self._targets = targets
        self._producers = producers
        self._writer = writer
        self._host = host

    @serves(RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2)
    async def send(self, command: Command, channel: Channel) -> Command:
        """Push a reply to the client that it names, and store it if storeReplyMessageEnable is set.

        A reply that could not be pushed is still stored, but answered with SYSTEM_ERROR
        (ReplyMessageProcessor). Unlike there, a stored reply can be decompressed.
        """
        header: _Request
        if command.code == RequestCode.SEND_REPLY_MESSAGE_V2:
            header = command.read_header(SendMessageRequestHeaderV2)
        else:
            header = command.read_header(SendMessageRequestHeader)
        message = self._message(header, bytes(command.body), channel)
        problem = await self._push(header, message, channel)
        message_id = "0"
        if self._settings.broker.store_reply_message_enable and await self._store(message):
            message_id = encode_offset_id(*self._host, message.physical_offset)
        config = self._settings.broker
        fields = {
            PropertyKey.MSG_REGION: config.region_id,
            PropertyKey.TRACE_SWITCH: "true" if config.trace_on else "false",
        }
        if problem is None or message_id != "0":
            fields |= SendMessageResponseHeader(
                msg_id=message_id,
                queue_id=message.queue_id,
                queue_offset=message.queue_offset,
            ).encode()
        code = ResponseCode.SUCCESS if problem is None else ResponseCode.SYSTEM_ERROR
        return command.reply(code, fields, remark=problem)

    def _message(self, header: _Request, body: bytes, channel: Channel) -> StoredMessage:
        """The message to push and to store. Raises Refused like any send."""
        accept_from = self._settings.broker.start_accept_send_request_time_stamp
        if clock.time() * 1000 < accept_from:
            text = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(accept_from / 1000))
            raise Refused(ResponseCode.SYSTEM_ERROR, f"broker unable to service, until {text}")
        limit = self._settings.store.max_message_size
        if len(body) > limit:
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"a body of {len(body)} bytes is over the limit of {limit} (maxMessageSize)",
            )
        queue = self._targets.find(
            header.topic,
            str(header.queue_id),
            header.default_topic,
            header.default_topic_queue_nums,
            header.unit_mode,
            channel,
        )
        properties = decode(header.properties or "")
        drop_brokers_own(properties)
        name_withdrawn(properties, queue.topic)
        return StoredMessage(
            queue.topic,
            body,
            properties,
            queue_id=queue.queue_id,
            flag=header.flag,
            sys_flag=header.sys_flag & _COMPRESSION,
            born_timestamp=header.born_timestamp,
            born_host=channel.remote_address,
            reconsume_times=header.reconsume_times or 0,
        )

    async def _push(self, header: _Request, message: StoredMessage, channel: Channel) -> str | None:
        """Push a reply to the client that waits for it; returns the cause of a failure, or None."""
        client_id = message.properties.get(PropertyKey.REPLY_TO_CLIENT)
        if client_id is None:
            return f"reply message properties[{PropertyKey.REPLY_TO_CLIENT}] is null"
        receiver = self._producers.find(client_id)
        if receiver is None or receiver.closed:
            return f"push reply message fail, channel of <{client_id}> not found."
        now = clock.milliseconds()
        pushed = ReplyMessageRequestHeader(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            properties=encode({**message.properties, PropertyKey.PUSH_REPLY_TIME: str(now)}),
            reconsume_times=header.reconsume_times,
            unit_mode=header.unit_mode,
            born_host=channel.remote,
            store_host=f"{self._host[0]}:{self._host[1]}",
            store_timestamp=now,
        )
        push = Command(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, pushed.encode(), message.body)
        try:
            answer = await receiver.request(push, PUSH_SECONDS)
        except (TimeoutError, ConnectionError) as error:
            log.warning("cannot push a reply to %s: %r", client_id, error)
            return f"push reply message to {client_id}fail."
        if answer.code != ResponseCode.SUCCESS:
            log.warning("%s refused a pushed reply: %s", client_id, answer.remark)
            return f"push reply message to {client_id}fail."
        return None

    async def _store(self, message: StoredMessage) -> bool:
        results = StoreResults()
        try:
            results.put(lambda stored: self._writer.put_or_delay(message, stored))
        except StoreRefused as refusal:
            log.warning("cannot store a reply: %s", refusal, extra={"failure": "stored replies"})
            return False
        await results.wait()
        return is_stored(results.refusal)
