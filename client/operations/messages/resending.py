"""Sends stored messages again, as new ones or to one consumer."""

from typing import TYPE_CHECKING

from mq.client.operations import wire
from mq.client.operations.errors import BadData
from mq.protocol.host import address_text
from mq.protocol.message import Message
from mq.protocol.properties import RESERVED

if TYPE_CHECKING:
    from mq.client.transport.caller import Caller
    from mq.protocol.bodies import ConsumeMessageDirectlyResult
    from mq.protocol.message import StoredMessage


def same_again(stored: "StoredMessage") -> Message:
    """Create a message with all properties of a stored one, including its unique id, as
    QueryMsgByIdSubCommand does.

    Raises BadData if the body is as stored: the new message would not be marked as compressed.
    """
    if stored.body_error:
        raise BadData(f"message {stored.message_id} is not sent again: {stored.body_error}")
    again = Message(stored.topic, bytes(stored.body), flag=stored.flag)
    for name, value in stored.properties.items():
        (again.system if name in RESERVED else again.properties)[name] = value
    return again


async def consume_directly(
    session: "Caller", stored: "StoredMessage", group: str, client_id: str
) -> "ConsumeMessageDirectlyResult":
    """Let one consumer of a group consume a message now, through its broker, and wait for the
    result.

    Raises ConsumerNotOnline, BrokerError, MQError.
    """
    address = address_text(stored.store_host)
    return await wire.consume_directly(session, address, group, client_id, stored.offset_id)
