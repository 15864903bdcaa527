"""Runs all checks of a cluster, in order."""

from typing import TYPE_CHECKING

from mq.client.operations.doctor.examination import Examination, Limits
from mq.client.operations.doctor.finding import Finding
from mq.client.operations.doctor.groups import check_groups
from mq.client.operations.doctor.servers import check_brokers, check_name_servers, check_snodes
from mq.client.operations.doctor.topics import check_topics

if TYPE_CHECKING:
    from mq.client.transport.caller import Caller


async def examine(session: "Caller", limits: Limits, now: float) -> list[Finding]:
    """Return the findings of all checks; `now` is in seconds since 1970."""
    examination = Examination(session, limits, now)
    await check_name_servers(examination)
    if examination.clusters:
        await check_brokers(examination)
        await check_snodes(examination)
        await check_topics(examination)
        await check_groups(examination)
    return examination.findings
