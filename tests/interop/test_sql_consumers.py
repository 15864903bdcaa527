"""Java clients with SQL92 filters and our broker."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from mq.client.admin import Admin
from mq.client.transport.session import Session
from mq.protocol.bodies import TopicConfig
from tests.interop import peers
from tests.interop.java_client import JavaClient, JavaFailed
from tests.interop.jvm import require_java
from tests.interop.tools import our_daemons

pytestmark = pytest.mark.java


@dataclass(frozen=True)
class Peers:
    java: JavaClient
    namesrv: str
    broker: str

    def settle(self, property_filter: bool) -> None:
        """Allow or forbid such filters at the broker."""

        async def change() -> None:
            async with Session(self.namesrv) as session:
                value = str(property_filter).lower()
                await Admin(session).update_broker_config(
                    self.broker, {"enablePropertyFilter": value}
                )

        asyncio.run(change())

    def topic(self, name: str) -> str:
        name = f"{name}-{self.java.release.replace('.', '-')}"

        async def make() -> None:
            async with Session(self.namesrv) as session:
                config = TopicConfig(topic_name=name, read_queue_nums=2, write_queue_nums=2)
                await Admin(session).create_topic(self.broker, config)

        asyncio.run(make())
        return name


@pytest.fixture(scope="module", params=peers.CLIENT_RELEASES)
def java(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Peers]:
    require_java()
    tmp = tmp_path_factory.mktemp("sql")
    with our_daemons(tmp) as (namesrv, broker), JavaClient(request.param, namesrv, tmp) as client:
        found = Peers(client, namesrv, broker)
        found.settle(property_filter=True)
        yield found


def test_a_push_consumer_gets_what_its_filter_matches(java: Peers) -> None:
    topic = java.topic("push")
    java.java.send(topic, count=20)
    group = f"g-{topic}"
    java.java.consume(topic, group, topic, "sql:number >= 5 AND number < 9 AND TAGS = 'tag'")
    got = java.java.got(topic, 4)
    assert sorted(message.body for message in got) == ["tag-5", "tag-6", "tag-7", "tag-8"]
    # Messages that arrive while it waits are filtered, too: the last of these is the first match.
    java.java.send(topic, tag="other", count=20)
    java.java.send(topic, tag="tag", count=6)
    got = java.java.got(topic, 5)
    assert sorted(message.body for message in got)[0] == "tag-5"
    assert len(got) == 5
    java.java.stop_consumer(topic)


def test_a_lite_pull_consumer_gets_what_its_filter_matches(java: Peers) -> None:
    topic = java.topic("pull")
    java.java.send(topic, count=10)
    expression = "sql:number BETWEEN 2 AND 4 OR number IN ('8')"
    got = java.java.messages("lite", f"g-{topic}", topic, expression, 4)
    assert sorted(message.body for message in got) == ["tag-2", "tag-3", "tag-4", "tag-8"]


def test_a_client_with_a_bad_expression_does_not_start(java: Peers) -> None:
    topic = java.topic("bad")
    with pytest.raises(JavaFailed, match=r"line 1, column 9: the end is unexpected"):
        java.java.consume(topic, f"g-{topic}", topic, "sql:number >")


def test_a_client_with_a_forbidden_filter_does_not_start(java: Peers) -> None:
    topic = java.topic("off")
    java.settle(property_filter=False)
    try:
        with pytest.raises(
            JavaFailed, match="does not support consumer to filter message by SQL92"
        ):
            java.java.consume(topic, f"g-{topic}", topic, "sql:number > 1")
    finally:
        java.settle(property_filter=True)
