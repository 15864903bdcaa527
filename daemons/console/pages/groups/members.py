"""Who is in a group, asked within the time of a page."""

from collections.abc import Mapping

from mq.client.operations.subjects import group_members
from mq.client.operations.subjects.group_members import MOST_ASKED, Members
from mq.daemons.console.call import Call
from mq.daemons.console.collector.snapshot import BrokerRow
from mq.daemons.console.pages.broker_queries import DEADLINE


async def connected(call: Call, brokers: Mapping[str, BrokerRow], group: str) -> Members:
    """Who is connected to these brokers; no member is asked."""
    return await group_members.collect(call.admin, brokers, group, DEADLINE, 0)


async def collect(call: Call, brokers: Mapping[str, BrokerRow], group: str) -> Members:
    """The same, and what members say."""
    return await group_members.collect(call.admin, brokers, group, DEADLINE, MOST_ASKED)
