"""The permissions that a request needs: on topics and groups, or an administrator.

Java's lists (PlainAccessValidator.parse, Permission.ADMIN_CODE of 4.9.8) have gaps through which an
account can bypass its permissions: they lack batches, changes of other groups' offsets, and changes
of accounts. The rows of mq.protocol.codes include them; this module finds the names to which a
row's rights refer. docs/decisions/0010 lists the differences from Java.
"""

from collections.abc import Mapping

from mq.daemons.acl.accounts import PUB, SUB
from mq.daemons.acl.errors import AclError
from mq.daemons.broker.clients import lock_handlers
from mq.daemons.broker.clients.client_handlers import MOST_HEARTBEAT_BYTES
from mq.protocol.bodies import (
    BatchAckMessageRequestBody,
    HeartbeatData,
    LockBatchRequestBody,
    QueryAssignmentRequestBody,
    UnlockBatchRequestBody,
)
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.headers import HEADERS
from mq.protocol.headers.schema import Header
from mq.protocol.headers.send import Letter
from mq.protocol.names import RETRY_PREFIX
from mq.protocol.pop_receipt import normal_topic
from mq.protocol.properties import PropertyKey, decode
from mq.protocol.requests import BROKER, FILTER_SERVER, NamedIn

# A topic, or the retry topic that stands for a group, and PUB or SUB.
Need = tuple[str, int]

# A filter server checks pulls like its broker.
_ASKED = [code for code in RequestCode if code.answered_by & (BROKER | FILTER_SERVER)]

# The requests of accounts other than administrators, if they have the required rights. All other
# codes, including those without a row, are for administrators.
OPEN = frozenset(int(code) for code in _ASKED if code.rights is not None)

# The requests with topics and groups in their bodies.
BODIES = frozenset(
    int(code)
    for code in _ASKED
    if any(right.named_in is NamedIn.BODY for right in code.rights or ())
)

_LOCKS = (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ)


def _attribute(code: RequestCode, permission: str, resource: str) -> str | None:
    """The header attribute with the topic, or group, that a request sends to or reads as."""
    for right in code.rights or ():
        if right[:3] == (permission, resource, NamedIn.HEADER):
            return right.attribute
    return None


def _sending() -> dict[int, tuple[type[Header], str]]:
    """The requests that send to the topic in their header, and its attribute."""
    named = {code: _attribute(code, "PUB", "topic") for code in _ASKED}
    return {int(code): (HEADERS[code], name) for code, name in named.items() if name}


def _reading() -> dict[int, tuple[type[Header], str | None, str | None]]:
    """The requests that read, with the header attributes of the topic and the group."""
    named = {
        code: (_attribute(code, "SUB", "topic"), _attribute(code, "SUB", "group"))
        for code in _ASKED
    }
    return {int(code): (HEADERS[code], *names) for code, names in named.items() if any(names)}


_SENDS = _sending()
_READS = _reading()

# Popped messages are acknowledged in the topic in which they are stored: a retry topic belongs to
# the topic that was popped. Only these requests name such a topic; in others %RETRY%a_b is the
# retry topic of group a_b.
_ACKNOWLEDGE = frozenset((RequestCode.ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME))


def needs(command: Command) -> list[Need]:
    """The permissions that a request needs.

    Raises AclError for a malformed request.
    """
    try:
        return _needs(command)
    except RemoteProtocolError as error:
        raise AclError(f"cannot read the request: {error}") from None


def needs_direct(code: int, fields: Mapping[str, str]) -> list[Need]:
    """Like `needs`, for a request of the hot path, by the fields that its handler reads."""
    if code in _SENDS:
        return _to_send(fields[Letter.TOPIC], fields.get(Letter.PROPERTIES))
    return [(fields["topic"], SUB), (RETRY_PREFIX + fields["consumerGroup"], SUB)]


def _needs(command: Command) -> list[Need]:
    code = command.code
    sends = _SENDS.get(code)
    if sends is not None:
        schema, name = sends
        header = command.read_header(schema)
        return _to_send(getattr(header, name), getattr(header, "properties", None))
    reads = _READS.get(code)
    if reads is None:
        return _of_body(command)
    schema, topic_name, group_name = reads
    header = command.read_header(schema)
    topic = getattr(header, topic_name) if topic_name else None
    group = getattr(header, group_name) if group_name else None
    if topic and group and code in _ACKNOWLEDGE:
        topic = normal_topic(topic, group)
    return _to_read(topic, group)


def _to_send(topic: str, properties: str | None) -> list[Need]:
    if not topic.startswith(RETRY_PREFIX):
        return [(topic, PUB)]
    # A consumer sends a copy of a message that it could not consume. The group is that of the
    # topic: Java takes it from another field, which the sender can choose freely. Consumers get the
    # copy as a message of the topic in RETRY_TOPIC, so the sender must be allowed to read that.
    origin = decode(properties or "").get(PropertyKey.RETRY_TOPIC)
    return [(topic, SUB)] if origin is None else [(topic, SUB), (origin, SUB)]


def _to_read(topic: str | None, group: str | None) -> list[Need]:
    found = [] if topic is None else [(topic, SUB)]
    if group is not None:
        found.append((RETRY_PREFIX + group, SUB))
    return found


def _of_body(command: Command) -> list[Need]:
    code = command.code
    if code == RequestCode.HEART_BEAT:
        if len(command.body) > MOST_HEARTBEAT_BYTES:
            return []  # its handler refuses it without decoding
        found = []
        for consumer in command.read_body(HeartbeatData).consumer_data_set:
            found.append((RETRY_PREFIX + consumer.group_name, SUB))
            found += [(item.topic, SUB) for item in consumer.subscription_data_set]
        return found
    if code == RequestCode.BATCH_ACK_MESSAGE:
        return [
            need
            for ack in command.read_body(BatchAckMessageRequestBody).acks
            for need in _to_read(ack.topic or "", ack.consumer_group or "")
        ]
    if code == RequestCode.QUERY_ASSIGNMENT:
        asked = command.read_body(QueryAssignmentRequestBody)
        topic, group = asked.topic or "", asked.consumer_group or ""
        # A consumer requests its own retry topic, too: the group stands for it.
        return _to_read(None if topic.startswith(RETRY_PREFIX) else topic, group)
    if code in _LOCKS and len(command.body) > lock_handlers.MOST_BYTES:
        return []  # likewise
    if code == RequestCode.LOCK_BATCH_MQ:
        return _to_read(None, command.read_body(LockBatchRequestBody).consumer_group)
    if code == RequestCode.UNLOCK_BATCH_MQ:
        return _to_read(None, command.read_body(UnlockBatchRequestBody).consumer_group)
    return []
