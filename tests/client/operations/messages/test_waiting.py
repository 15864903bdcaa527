import pytest

from mq.client.machine import clock
from mq.client.operations.messages.waiting import Level, TimedMessages, delayed, level_millis, timed
from mq.protocol.message import Message
from tests.client.clusters import TOPIC, Cluster, cluster
from tests.client.scenarios import eventually, opened


async def levels(made: Cluster) -> list[Level]:
    return await delayed(made.admin, "broker-a", made.pair.broker.address)


async def timer(made: Cluster) -> TimedMessages | None:
    address = made.pair.broker.address
    return await timed(made.admin, "broker-a", address, clock.milliseconds())


@opened(cluster)
async def test_where_nothing_was_delayed_nothing_waits(made: Cluster) -> None:
    assert await levels(made) == []
    assert await timer(made) is None


@opened(cluster)
async def test_delayed_messages_are_counted_by_level_with_the_next_one_due(made: Cluster) -> None:
    for _ in range(3):
        await made.producer.send(Message(TOPIC, b"later", delay_level=18))
    await made.producer.send(Message(TOPIC, b"soon", delay_level=1))
    sent = clock.milliseconds()

    async def is_delivered() -> bool:
        return [row.waiting for row in await levels(made)] == [0, 3]

    await eventually(is_delivered)
    first, last = await levels(made)
    assert (first.level, first.delay_millis, first.next_due) == (1, 1000, None)
    assert (last.level, last.delay_millis, last.next_topic) == (18, 7_200_000, TOPIC)
    assert last.next_due is not None and abs(last.next_due - sent - 7_200_000) < 60_000


@opened(lambda: cluster(recallMessageEnable="true"))
async def test_timed_messages_are_counted_until_they_are_due_or_recalled(made: Cluster) -> None:
    now = clock.milliseconds()
    for hours in (3, 1, 2):
        due = now + hours * 3_600_000
        sent = await made.producer.send(Message(TOPIC, b"timed", deliver_at=due))
    await made.producer.send(Message(TOPIC, b"now", deliver_at=now + 500))

    async def count() -> bool:
        found = await timer(made)
        return found is not None and found.waiting == 3

    await eventually(count)
    found = await timer(made)
    assert found is not None and found.is_all and found.next_topic == TOPIC
    assert found.next_due is not None and abs(found.next_due - now - 3_600_000) <= 1000
    assert sent.recall_handle is not None
    await made.producer.recall(sent.recall_handle)
    then = await timer(made)
    assert then is not None and then.waiting == 2


@opened(cluster)
async def test_a_broker_that_is_away_is_a_problem_and_not_zero(made: Cluster) -> None:
    await made.producer.send(Message(TOPIC, b"timed", deliver_at=clock.milliseconds() + 10**7))
    found = await timed(made.admin, "gone", "127.0.0.1:1", 0)
    assert found is not None and found.waiting is None and found.problem


def test_levels_are_read_as_brokers_write_them() -> None:
    assert level_millis("1s 2m 3h 1d") == (1_000, 120_000, 10_800_000, 86_400_000)
    for text in ("1", "x 1s", "1w", "-1s"):
        with pytest.raises(ValueError, match="not the delay of a level"):
            level_millis(text)
