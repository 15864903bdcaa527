"""The data of pages, compared with the output of commands at the same time."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mq.client.operations.times import iso
from tests.cli.support import Mq
from tests.daemons.console.browser.filled import (
    DELAYED,
    GROUP,
    LETTERS,
    OPEN,
    TOPIC,
    all_seen,
    filled,
)
from tests.daemons.console.site import Consoles

# Fields with another form in pages, or that pages request separately.
_OTHERS = ("properties", "consumers")
_TIMES = ("lastUpdated", "lastConsumed", "storeTime", "bornTime", "oldest", "newest")


def _alike(rows: list[dict[str, Any]], told: list[dict[str, Any]], where: str) -> None:
    """Each row of a command is a row of the page, for their common fields."""
    assert len(rows) == len(told), where
    for row, other in zip(rows, told, strict=True):
        common = {name for name in row.keys() & other.keys() if name not in _OTHERS}
        assert len(common) > 3, where
        for name in common:
            value = iso(row[name]) if name in _TIMES else row[name]
            assert value == other[name], f"{where}: {name}"
            assert row[name] != 0 or other[name] == 0, f"{where}: {name} is unknown, not 0"


def test_pages_say_what_the_commands_say(console: Consoles, tmp_path: Path) -> None:
    async def main() -> None:
        async with console() as site, filled(site.pair):
            await all_seen(site)
            mq = Mq(tmp_path, {"NAMESRV_ADDR": site.pair.name_server_address})
            newest = (await site.api(f"/messages/{TOPIC}")).json["messages"][0]
            place = newest["brokerName"], str(newest["queueId"]), str(newest["queueOffset"])
            pages: list[tuple[str, Callable[[Any], Any], tuple[str, ...]]] = [
                (f"/topics/{topic}", lambda page: page["queues"], ("topicStatus", "-t", topic))
                for topic in (TOPIC, DELAYED, OPEN, "SCHEDULE_TOPIC_XXXX", f"%DLQ%{LETTERS}")
            ]
            pages += [
                (
                    f"/groups/{GROUP}",
                    lambda page: page["queues"],
                    ("consumerProgress", "-g", GROUP),
                ),
                (
                    f"/dead-letters/{LETTERS}",
                    lambda page: page["letters"][::-1],
                    ("dlq", "show", "-g", LETTERS),
                ),
                (
                    f"/messages/{TOPIC}?key=order-7",
                    lambda page: page["messages"],
                    ("queryMsgByKey", "-t", TOPIC, "-k", "order-7"),
                ),
                (
                    f"/messages/{TOPIC}/{'/'.join(place)}",
                    lambda page: [{**page, **page["message"]}],
                    (
                        *("queryMsgByOffset", "-t", TOPIC, "-b", place[0]),
                        *("-i", place[1], "-o", place[2]),
                    ),
                ),
            ]
            for path, rows, words in pages:
                told = await asyncio.to_thread(mq, *words, "--output", "json")
                assert told.status == 0, told.err
                page = (await site.api(f"{path.replace('%', '%25')}")).json
                shown = rows(page)
                if words[0].startswith("queryMsg"):
                    for one in (*shown, *told.json["data"]):
                        one.pop("body")  # indented where a message is shown
                _alike(shown, told.json["data"], path)
            (listed,) = (await site.api("/dead-letters")).json["groups"]
            (other,) = (await asyncio.to_thread(mq, "dlq", "list", "--output", "json")).json["data"]
            topics = [f"{one['topic']} ({one['count']})" for one in listed["topics"]]
            _alike([{**listed, "topics": ", ".join(topics)}], [other], "/dead-letters")

    asyncio.run(main())
