"""Request and reply: a producer sends a message and waits for the message that answers it.

The request is stored and consumed like any message. Its consumer sends the reply to a broker, which
pushes it to the requesting client (RequestResponseFuture, MessageUtil.createReplyMessage).
"""

import asyncio
import copy
import logging
from collections.abc import Mapping
from weakref import WeakKeyDictionary

from mq.client.errors import ClientError
from mq.client.machine import clock, random_ids
from mq.client.transport.caller import parse_address
from mq.client.transport.session import Session
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.compression import decompress
from mq.protocol.flags import SysFlag
from mq.protocol.headers.send import ReplyMessageRequestHeader
from mq.protocol.message import Message, StoredMessage
from mq.protocol.names import reply_topic
from mq.protocol.properties import PropertyKey
from mq.protocol.properties import decode as decode_properties

log = logging.getLogger(__name__)

REPLY = "reply"  # MixAll.REPLY_MESSAGE_FLAG


def make_request(message: Message, client_id: str, seconds: float) -> tuple[Message, str]:
    """Return a copy of a message that requests a reply to this client, and the reply's correlation
    id.
    """
    correlation_id = str(random_ids.uuid4())
    request = copy.copy(message)
    request.system = {
        **message.system,
        PropertyKey.CORRELATION_ID: correlation_id,
        PropertyKey.REPLY_TO_CLIENT: client_id,
        PropertyKey.TTL: str(int(seconds * 1000)),
    }
    return request, correlation_id


def make_reply(
    request: StoredMessage, body: bytes, *, properties: Mapping[str, str] | None = None
) -> Message:
    """Create the reply to a consumed request message. Any `Producer` can send it.

    Raises ClientError if the message does not request a reply, or lacks the cluster to send it to.
    """
    asked = request.properties
    cluster = asked.get(PropertyKey.CLUSTER)
    if cluster is None:
        raise ClientError("no reply: the broker has not stored its cluster in the request")
    wanted = (PropertyKey.CORRELATION_ID, PropertyKey.REPLY_TO_CLIENT)
    missing = [name for name in wanted if name not in asked]
    if missing:
        raise ClientError(f"no reply: {request!r} is not a request: no {' and '.join(missing)}")
    reply = Message(reply_topic(cluster), body, properties=properties)
    reply.system[PropertyKey.MESSAGE_TYPE] = REPLY
    for name in (*wanted, PropertyKey.TTL):
        if name in asked:
            reply.system[name] = asked[name]
    return reply


class Replies:
    """The pending requests of a session, by correlation id."""

    def __init__(self, session: Session) -> None:
        self._waiting: dict[str, asyncio.Future[StoredMessage]] = {}
        session.on_request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self._arrived)

    def expect(self, correlation_id: str) -> "asyncio.Future[StoredMessage]":
        """Return a future that completes with the reply."""
        future: asyncio.Future[StoredMessage] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = future
        future.add_done_callback(lambda _: self._waiting.pop(correlation_id, None))
        return future

    def _arrived(self, request: Command, address: str) -> Command:
        reply = read_reply(request)
        correlation_id = reply.properties.get(PropertyKey.CORRELATION_ID, "")
        future = self._waiting.get(correlation_id)
        if future is None or future.done():
            log.warning("dropped a reply to %s, which is no longer pending", correlation_id)
        else:
            future.set_result(reply)
        return request.reply(ResponseCode.SUCCESS)


def read_reply(request: Command) -> StoredMessage:
    """Decode the message in a PUSH_REPLY_MESSAGE_TO_CLIENT.

    Raises RemoteProtocolError for a header or a body that cannot be decoded, ClientError and
    ValueError for invalid hosts.
    """
    header = ReplyMessageRequestHeader.decode(request.fields)
    body = bytes(request.body)
    if header.sys_flag & SysFlag.COMPRESSED:
        body = bytes(decompress(body, header.sys_flag))
    properties = decode_properties(header.properties or "")
    properties[PropertyKey.ARRIVE_TIME] = str(clock.milliseconds())
    return StoredMessage(
        header.topic,
        body,
        properties,
        queue_id=header.queue_id,
        flag=header.flag,
        born_timestamp=header.born_timestamp,
        born_host=parse_address(header.born_host),
        store_timestamp=header.store_timestamp,
        store_host=parse_address(header.store_host),
        reconsume_times=header.reconsume_times or 0,
    )


_REPLIES: "WeakKeyDictionary[Session, Replies]" = WeakKeyDictionary()


def replies_of(session: Session) -> Replies:
    """Return the pending requests of a session."""
    replies = _REPLIES.get(session)
    if replies is None:
        replies = _REPLIES[session] = Replies(session)
    return replies
