"""A TubeMQ master and a broker in one process, and its fixture."""

import asyncio
from pathlib import Path

import pytest

from mq.daemons.config import ConfigError
from mq.daemons.tube.standalone import TubeStandalone, parse_topics
from mq.testing import RunningTube
from tests.daemons.tube.loops import in_loop


def standalone(folder: Path, topics: dict[str, int]) -> TubeStandalone:
    return TubeStandalone(folder, master_port=0, broker_port=0, web_port=0, topics=topics)


@in_loop
async def test_topics_can_be_sent_to_and_consumed_at_once(tmp_path: Path) -> None:
    topics = {"one": 2}
    async with standalone(tmp_path, topics) as pair:
        await pair.create_topic("two", 3)
        views = pair.master.core.brokers.views
        assert len(views.partitions(["one", "two"])) == 5
        assert pair.broker.address in str(views.partitions(["one"])[0].broker.address)
        assert pair.master_address in pair.ready_text()
    # The topics exist afterwards, although the ports differ.
    async with standalone(tmp_path, {}) as pair:
        await pair.create_topic("two")
        assert len(pair.master.core.brokers.views.partitions(["one", "two"])) == 5


@pytest.mark.parametrize("text", ["1", "demo:0", "demo:x", "demo:10000", "de mo"])
def test_a_topic_that_cannot_be_is_named(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_topics([text])
    assert parse_topics(["demo", "more:9"]) == {"demo": 3, "more": 9}


def test_the_fixture_serves_until_the_end_of_a_test(mq_tube: RunningTube) -> None:
    mq_tube.create_topic("demo")
    master = mq_tube.master
    mq_tube.restart()
    assert mq_tube.master == master

    async def connect() -> None:
        host, _, port = master.rpartition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.close()

    asyncio.run(connect())
