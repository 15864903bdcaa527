"""Bodies whose sets preserve the order of the wire.

Java iterates over its sets in the order of their hash tables, which depends on the order of
insertion if two names share a bucket. See `mq.client.operations.java_order`.
"""

from typing import TYPE_CHECKING, TypeVar

from mq.client.errors import BadAnswer
from mq.protocol.bodies.route import BrokerData
from mq.protocol.bodies.schema import Body, field
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.errors import RemoteProtocolError

if TYPE_CHECKING:
    from mq.client.transport.caller import Caller
    from mq.protocol.bodies import ConsumeMessageDirectlyResult

B = TypeVar("B", bound=Body)


class GroupNames(Body):
    """`GroupList` with its order."""

    group_list: list[str] = field(factory=list)


class Clusters(Body):
    """`ClusterInfo` with its order: brokers by name, broker names by cluster."""

    broker_addr_table: dict[str, BrokerData] = field(factory=dict)
    cluster_addr_table: dict[str, list[str]] = field(factory=dict)


async def clusters(session: "Caller") -> Clusters:
    """Return every cluster and broker."""
    response = await session.call_name_server(Command(RequestCode.GET_BROKER_CLUSTER_INFO))
    return _read(Clusters, response, "name server")


async def groups_of_topic(session: "Caller", address: str, topic: str) -> list[str]:
    """Return the consumer groups of `topic` that the broker at `address` knows."""
    request = Command(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": topic})
    return _read(GroupNames, await session.call(address, request), address).group_list


async def consume_directly(
    session: "Caller", address: str, group: str, client_id: str, message_id: str
) -> "ConsumeMessageDirectlyResult":
    """Let one consumer consume the message of an offset id, through the broker at `address`."""
    from mq.protocol.bodies import ConsumeMessageDirectlyResult
    from mq.protocol.headers import ConsumeMessageDirectlyResultRequestHeader

    header = ConsumeMessageDirectlyResultRequestHeader(
        consumer_group=group, client_id=client_id, msg_id=message_id
    )
    request = Command(RequestCode.CONSUME_MESSAGE_DIRECTLY, header.encode())
    # The broker waits for the consumer, which may be slow.
    response = await session.call(address, request, 3 * session.timeout)
    return _read(ConsumeMessageDirectlyResult, response, address)


def _read(body: type[B], response: Command, address: str) -> B:
    try:
        return body.decode(response.body)
    except RemoteProtocolError as error:
        raise BadAnswer(address, str(error)) from None
