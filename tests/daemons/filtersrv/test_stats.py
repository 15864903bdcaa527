"""Statistics of a filter server about its groups: in the log and in monitoring."""

import asyncio
import logging

import pytest

from mq.daemons.filtersrv.app import GroupStats, metrics_of
from mq.daemons.filtersrv.classes import UNUSED_SECONDS, Key
from mq.protocol.message import decode_records
from tests.daemons.filtersrv.servers import GROUP, TOPIC, pull, servers, upload
from tests.daemons.peer import Peer

KEY = Key(TOPIC, GROUP)


def test_each_group_counts_its_own_messages(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> tuple[int, dict[str, float]]:
        async with servers() as at, Peer(at.filters.port) as peer:
            await at.send(b"1", b"2", b"4")
            await upload(peer)
            stats = GroupStats(at.filters.classes)
            stats.log_minute()
            found = await pull(peer)
            assert len(decode_records(found.body)) == 2
            stats.log_minute()
            stats.log_minute()
            told = metrics_of(at.filters.listener, at.filters.tasks, at.filters.classes)
            values = {
                metric.name: metric.values[-1][1]
                for metric in told
                if metric.name.startswith("mq_filter")
            }
            return len(found.body), values

    with caplog.at_level(logging.INFO, "mq.daemons.filtersrv.app"):
        size, values = asyncio.run(main())
    texts = [record.getMessage() for record in caplog.records if "Stats" in record.getMessage()]
    of = f"[{TOPIC}@{GROUP}] Stats In One Minute, SUM:"
    assert [text.partition(" TPS")[0] for text in texts] == [
        f"[GROUP_GET_NUMS] {of} 0",
        f"[GROUP_GET_SIZE] {of} 0",
        f"[GROUP_GET_NUMS] {of} 2",
        f"[GROUP_GET_SIZE] {of} {size}",
        f"[GROUP_GET_NUMS] {of} 0",
        f"[GROUP_GET_SIZE] {of} 0",
    ]
    assert values == {
        "mq_filter_classes": 1,
        "mq_filter_sandboxes": 1,
        "mq_filter_sandbox_ends_total": 0,
        "mq_filter_seen_total": 3,
        "mq_filter_messages_total": 2,
        "mq_filter_bytes_total": size,
        "mq_filter_failures_total": 0,
    }


def test_counts_of_a_removed_class_restart_at_zero(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with servers() as at, Peer(at.filters.port) as peer:
            await at.send(b"2", b"4")
            await upload(peer)
            stats = GroupStats(at.filters.classes)
            await pull(peer)
            stats.log_minute()
            at.filters.classes.table[KEY].used = -UNUSED_SECONDS
            await at.filters.classes.remove_unused()
            await upload(peer)
            await pull(peer, 1)
            stats.log_minute()

    with caplog.at_level(logging.INFO, "mq.daemons.filtersrv.app"):
        asyncio.run(main())
    texts = [record.getMessage() for record in caplog.records if "GET_NUMS" in record.getMessage()]
    assert [text.partition("SUM: ")[2].partition(" ")[0] for text in texts] == ["2", "1"]
