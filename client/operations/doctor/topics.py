"""Checks of topics: whether they can be written and read everywhere."""

from mq.client.errors import MQError
from mq.client.operations.cluster_snapshot import reason
from mq.client.operations.doctor.examination import Examination
from mq.client.operations.doctor.finding import Severity
from mq.client.operations.plurals import counted
from mq.protocol import names
from mq.protocol.bodies import TopicRouteData
from mq.protocol.flags import Permission

_NO_QUEUES = "create it on a broker: mq updateTopic"


async def check_topics(examination: Examination) -> None:
    """Check that each user topic has queues, consistent permissions, and running brokers."""
    try:
        everything = (await examination.admin.topic_list()).topic_list
    except MQError as error:
        examination.say("topic", Severity.UNKNOWN, "topics", str(error))
        return
    clusters = set(examination.info.cluster_addr_table)
    users = sorted(
        topic
        for topic in everything
        if not names.is_system_topic(topic)
        and topic not in clusters
        and topic not in examination.info.broker_addr_table
        and not topic.endswith(names.REPLY_POSTFIX)
    )
    routes, errors = await examination.each(users, examination.admin.topic_route)
    for topic, failure in errors.items():
        examination.say("topic", Severity.WARNING, topic, reason(failure), _NO_QUEUES)
    wrong = len(examination.findings)
    for topic, route in routes.items():
        _check_route(examination, topic, route)
    if len(examination.findings) == wrong:
        examination.say(
            "topic",
            Severity.OK,
            "topics",
            f"{counted(len(routes), 'topic')} can be written and read",
        )


def _check_route(examination: Examination, topic: str, route: TopicRouteData) -> None:
    alive = {broker.broker_name for broker in route.broker_datas if broker.broker_addrs}
    missing = sorted({queue.broker_name for queue in route.queue_datas} - alive)
    if missing:
        examination.say(
            "route",
            Severity.CRITICAL,
            topic,
            f"has queues on brokers that are not there: {', '.join(missing)}",
            "start them; see: mq topicRoute",
        )
    for queue in route.queue_datas:
        place = f"on {queue.broker_name}"
        if not queue.perm & (Permission.READ | Permission.WRITE):
            examination.say(
                "permission", Severity.WARNING, topic, f"can be neither read nor written {place}"
            )
        elif queue.write_queue_nums > queue.read_queue_nums and queue.perm & Permission.WRITE:
            examination.say(
                "queues",
                Severity.CRITICAL,
                topic,
                f"is written to {counted(queue.write_queue_nums, 'queue')} {place}, and only "
                f"{queue.read_queue_nums} of them are read",
                f"read all: mq updateTopic -t {topic} -r {queue.write_queue_nums}",
            )
