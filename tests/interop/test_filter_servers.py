"""The consumer of Java 4.2.0, the last release with filter classes, and our filter server."""

import asyncio
import logging
import random
from pathlib import Path

import pytest

from mq.daemons.filtersrv.classes import Key
from tests.daemons.filtersrv.servers import EVEN, GROUP, TOPIC, Servers, servers
from tests.interop import peers
from tests.interop.jvm import HERE, compiled, jars, require_java
from tests.interop.process import Process
from tests.waiting import until

pytestmark = pytest.mark.java

JAVA = """package org.example;

import org.apache.rocketmq.common.filter.FilterContext;
import org.apache.rocketmq.common.filter.MessageFilter;
import org.apache.rocketmq.common.message.MessageExt;

public class Even implements MessageFilter {
    @Override
    public boolean match(MessageExt message, FilterContext context) {
        return Integer.parseInt(new String(message.getBody())) % 2 == 0;
    }
}
"""


class FilterConsumer(Process):
    """`java/FilterConsumer.java` with the client of 4.2.0."""

    def __init__(self, namesrv: str, name: str, source: str, tmp: Path) -> None:
        require_java()
        folder = jars("consumer-4.2.0")
        home = tmp / f"consumer-{random.randrange(1 << 32):08x}"
        home.mkdir()
        (home / "source").write_text(source)
        classes = compiled("4.2.0", folder, HERE / "java" / "FilterConsumer.java")
        words = [namesrv, GROUP, TOPIC, name, str(home / "source")]
        command = peers.java_command(folder, home, "128m", "FilterConsumer", classes)
        super().__init__([*command, *words], home, "READY")

    @property
    def got(self) -> list[tuple[str, int]]:
        words = [line.split() for line in self.lines if line.startswith("GOT ")]
        return [(body, int(length)) for _, body, length in words]


async def until_got(consumer: FilterConsumer, count: int) -> list[tuple[str, int]]:
    await until(lambda: len(consumer.got) >= count)
    return consumer.got


async def started(at: Servers, name: str, source: str, tmp: Path) -> FilterConsumer:
    consumer = FilterConsumer(at.pair.name_server_address, name, source, tmp)
    await asyncio.to_thread(consumer.start)
    return consumer


def test_a_java_consumer_gets_the_messages_that_a_python_filter_accepts(tmp_path: Path) -> None:
    """It sends any text as the source; pulls, offsets and records are Java's."""

    async def main() -> None:
        async with servers(queues=2) as at:
            await at.send(*(b"%d" % number for number in range(20)))
            large = b"42".ljust(20_000)  # it is sent compressed
            await at.send(large)
            consumer = await started(at, "Even", EVEN.decode(), tmp_path)
            try:
                got = await until_got(consumer, 11)
                assert sorted(length for _, length in got) == [1] * 5 + [2] * 5 + [20_000]
                await at.send(b"23", b"24")
                assert (await until_got(consumer, 12))[-1] == ("24", 2)
                assert len(consumer.got) == 12
                committed = at.pair.broker.stores.offsets.table

                async def all_committed() -> bool:
                    # Wait again: it prints a message before its listener returns.
                    consumer.write_line("commit")
                    return sum(committed.get(f"{TOPIC}@{GROUP}", {}).values()) == 23

                await until(all_committed)
            finally:
                consumer.kill()

    asyncio.run(main())


def test_a_java_filter_class_is_refused_and_its_consumer_continues_with_tags(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with servers() as at:
            await at.send(b"2", b"4", tag="even")
            await at.send(b"5", tag="odd")
            consumer = await started(at, "org.example.Even", JAVA, tmp_path)
            try:
                await until(lambda: "it is written in Java" in caplog.text)
                assert Key(TOPIC, GROUP) not in at.filters.classes.table
                assert consumer.got == []
                consumer.write_line("tags even")
                assert sorted(await until_got(consumer, 2)) == [("2", 1), ("4", 1)]
            finally:
                consumer.kill()

    with caplog.at_level(logging.WARNING, "mq.daemons.filtersrv"):
        asyncio.run(main())
    assert (
        "class org.example.Even is refused: it is written in Java, but filters are Python here"
        in caplog.text
    )
