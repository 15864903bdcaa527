"""Tables of topics and groups: a change is on the disk before it is visible."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.groups.group_table import Groups
from mq.daemons.broker.topics.topic_table import Topics, new_topic
from mq.protocol.bodies import SubscriptionGroupConfig

Table = Topics | Groups
Make = Callable[[Path], Table]


def topics(path: Path) -> Table:
    return Topics(path / "topics.json", BrokerSettings())


def groups(path: Path) -> Table:
    return Groups(path / "subscriptionGroup.json", BrokerSettings())


def member(table: Table, name: str) -> Any:
    if isinstance(table, Topics):
        return new_topic(name, 1)
    return SubscriptionGroupConfig(group_name=name)


def make_by_the_way(table: Table, name: str) -> None:
    if isinstance(table, Topics):
        table.create_internal(name, 1)
    else:
        assert table.find(name) is not None


def names_in_file(table: Table) -> set[str]:
    content = json.loads(table.file.path.read_bytes())
    return set(content.get("topicConfigTable") or content["subscriptionGroupTable"])


both = pytest.mark.parametrize("make", [topics, groups])


@both
def test_a_change_is_in_the_file_once_it_is_visible(tmp_path: Path, make: Make) -> None:
    async def script() -> None:
        table = make(tmp_path)
        version = table.data_version.counter
        await table.update(member(table, "a"))
        assert "a" in table.table and "a" in names_in_file(table)
        assert await table.delete("a")
        assert "a" not in table.table and "a" not in names_in_file(table)
        assert not await table.delete("a")
        assert table.data_version.counter == version + 2
        assert make(tmp_path).data_version == table.data_version

    asyncio.run(script())


@both
def test_entries_created_while_a_change_is_written_stay(tmp_path: Path, make: Make) -> None:
    async def script() -> None:
        table = make(tmp_path)
        changing = asyncio.ensure_future(table.update(member(table, "changed")))
        await asyncio.sleep(0)
        assert "changed" not in table.table
        version = table.data_version.counter
        make_by_the_way(table, "meanwhile")
        await changing
        assert {"changed", "meanwhile"} <= table.table.keys()
        assert table.data_version.counter == version + 2
        await table.save_pending()
        assert {"changed", "meanwhile"} <= names_in_file(table)
        await table.file.close()

    asyncio.run(script())


@both
def test_a_change_that_cannot_be_saved_changes_nothing(tmp_path: Path, make: Make) -> None:
    async def script() -> None:
        table = make(tmp_path)
        await table.update(member(table, "a"))
        known, version = dict(table.table), table.data_version
        (tmp_path / "nowhere").write_text("")
        table.file.path = tmp_path / "nowhere" / "file.json"
        with pytest.raises(OSError):
            await table.update(member(table, "b"))
        with pytest.raises(OSError):
            await table.delete("a")
        assert (table.table, table.data_version) == (known, version)

    asyncio.run(script())
