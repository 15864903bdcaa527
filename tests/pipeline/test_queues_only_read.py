"""Queues that are read and no longer written: a topic whose number of queues is being reduced."""

from mq.client.admin import Admin
from mq.client.transport.blocking import BlockingSession, run
from mq.pipeline.cluster import Bounds, Cluster
from mq.pipeline.jobs.offsets_of_groups import GroupFilter, ask, broker_addresses
from mq.pipeline.offsets import Queue
from mq.pipeline.options import parse_options
from mq.protocol.bodies import MessageQueue, TopicConfig
from mq.testing import RunningBroker
from tests.pipeline.filling import fill


def drained(broker: RunningBroker, topic: str) -> None:
    """Two messages in each of two queues; the second queue becomes read-only."""
    broker.create_topic(topic, 2)
    for queue_id in range(2):
        fill(broker.name_server, topic, [b"1", b"2"], MessageQueue(topic, "broker-a", queue_id))
    config = TopicConfig(topic_name=topic, read_queue_nums=2, write_queue_nums=1, perm=6)
    with BlockingSession(broker.name_server) as session:
        run(Admin(session).create_topic(broker.address, config))


def test_a_query_reads_read_only_queues(mq_session_broker: RunningBroker, mq_topic: str) -> None:
    """Brokers omit them from the reply about the ends of a topic's queues."""
    drained(mq_session_broker, mq_topic)
    options = parse_options({"nameServer": mq_session_broker.name_server, "topic": mq_topic})
    with Cluster(options) as cluster:
        assert cluster.bounds([mq_topic]) == {
            Queue(mq_topic, "broker-a", queue_id): Bounds(0, 2) for queue_id in range(2)
        }


def test_the_lag_of_read_only_queues_counts(
    mq_session_broker: RunningBroker, mq_topic: str
) -> None:
    drained(mq_session_broker, mq_topic)
    options = parse_options({"nameServer": mq_session_broker.name_server, "topic": mq_topic})
    with options.open_session(10) as session:
        for queue_id in range(2):
            run(
                Admin(session).update_consumer_offset(
                    mq_session_broker.address, "billing", mq_topic, queue_id, 1
                )
            )
    found = ask(options, broker_addresses(options), GroupFilter(topics=(mq_topic,)))
    assert found.failures == []
    assert [(row.queue_id, row.lag) for row in found.rows] == [(0, 1), (1, 1)]
