"""`describe`: everything about a group, a topic or a cluster on one page."""

from typing import Annotated

import typer

from mq.cli.describing import cluster_page, group_page, topic_page
from mq.cli.parameters import Topic, cluster_option, group_option
from mq.cli.runtime.call import Call
from mq.cli.runtime.effects import gives
from mq.cli.runtime.errors import legal
from mq.cli.runtime.options import subject
from mq.cli.runtime.runner import concurrently
from mq.cli.show.result import Result

COMMANDS = {
    "topic": ("topic describe",),
    "cluster": ("cluster describe",),
    "consumer": ("group describe",),
}


@concurrently
@gives(group_page.TOPICS, group_page.QUEUES, data=group_page.DATA)
@subject("group")
async def group_describe(
    call: Call,
    group: Annotated[str, group_option()],
    queues: Annotated[
        bool, typer.Option("--queues", help="Show each queue instead of each topic.")
    ] = False,
) -> Result:
    """Show all of a consumer group: lag, members, settings, retries, dead letters.

    It shows the lag and the age of the oldest waiting message by topic, or by queue; what each
    member subscribes to and consumes, with a note if subscriptions differ; and the settings at each
    broker. A broker that does not answer is reported, the rest is shown, and the exit status is 1.
    csv, --columns and --sort apply to the table of topics or queues.

    Examples:
        mq group describe billing                       all on one page
        mq group describe billing --queues              with each queue: offsets and client
        mq group describe billing -o json --watch 10    for a program, every ten seconds
    """
    from mq.client.operations.describing.group import describe
    from mq.protocol.names import check_group

    legal(check_group, group)
    now = int(call.environment.clock() * 1000)
    async with call.admin() as admin:
        page = await describe(admin, group, now, call.timeout)
    return group_page.result(page, now, by_queue=queues)


@concurrently
@gives(topic_page.QUEUES, data=topic_page.DATA)
@subject("topic")
async def topic_describe(call: Call, topic: Topic) -> Result:
    """Show all of a topic: route, queues, rates, consumer groups, settings, its oldest message.

    A broker that does not answer is reported, the rest is shown, and the exit status is 1. csv,
    --columns and --sort apply to the table of queues.

    Examples:
        mq topic describe Orders                        all on one page
        mq topic describe Orders -o csv                 its queues, for a spreadsheet
    """
    from mq.client.operations.describing.topic import describe
    from mq.protocol.names import check_topic

    legal(check_topic, topic)
    now = int(call.environment.clock() * 1000)
    async with call.admin() as admin:
        page = await describe(admin, topic, now, call.timeout)
    return topic_page.result(page, now)


@concurrently
@gives(cluster_page.BROKERS, cluster_page.TOPICS, data=cluster_page.DATA)
@subject("cluster_name")
async def cluster_describe(
    call: Call,
    cluster_name: Annotated[str | None, cluster_option("Only this cluster.")] = None,
    topics: Annotated[
        bool, typer.Option("--topics", help="Also show each topic with its queues at each broker.")
    ] = False,
) -> Result:
    """Show name servers, brokers with role, release, rates and disk, and what they hold.

    It shows what kcat -L shows. A server that does not answer is reported, the rest is shown, and
    the exit status is 1. csv, --columns and --sort apply to the table of brokers, or with --topics
    to that of topics.

    Examples:
        mq cluster describe                             all clusters of the name servers
        mq cluster describe --topics                    with each topic and its queues
    """
    from mq.client.operations.describing.cluster import describe

    async with call.session() as session:
        page = await describe(session, cluster_name, call.timeout)
    return cluster_page.result(page, with_topics=topics)
