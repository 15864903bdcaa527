"""The members of a group, queried within the deadline of a page."""

from collections.abc import Mapping

from mq.client.operations.subjects import group_members
from mq.client.operations.subjects.group_members import MOST_ASKED, Members
from mq.daemons.console.call import Call
from mq.daemons.console.collector.snapshot import BrokerRow
from mq.daemons.console.pages.broker_queries import DEADLINE


async def connected(call: Call, brokers: Mapping[str, BrokerRow], group: str) -> Members:
    """Return the clients that are connected to these brokers, without asking them."""
    return await group_members.collect(call.admin, brokers, group, DEADLINE, 0)


async def collect(call: Call, brokers: Mapping[str, BrokerRow], group: str) -> Members:
    """Return the same with the status of members."""
    return await group_members.collect(call.admin, brokers, group, DEADLINE, MOST_ASKED)
