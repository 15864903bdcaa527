import asyncio
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mq.daemons import state_file
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.topics.topic_table import Topics, new_topic
from mq.daemons.dispatch import Overloaded
from mq.daemons.state_file import write_atomically
from mq.protocol.flags import TopicSysFlag
from tests.daemons.broker.settings import broker_settings
from tests.daemons.stopped_time import stopped_monotonic

BORN = {
    "SELF_TEST_TOPIC": (1, 6),
    "BenchmarkTest": (1024, 6),
    "DefaultCluster": (16, 7),
    "broker-a": (1, 7),
    "OFFSET_MOVED_EVENT": (1, 6),
    "SCHEDULE_TOPIC_XXXX": (18, 6),
    "DefaultCluster_REPLY_TOPIC": (1, 6),
    "TBW102": (8, 7),
}


def config(**changes: object) -> BrokerSettings:
    return broker_settings(broker_name="broker-a", **changes)


def shape(topics: Topics) -> dict[str, tuple[int, int]]:
    return {t.topic_name or "": (t.write_queue_nums, t.perm) for t in topics.table.values()}


def test_a_new_broker_has_its_system_topics(tmp_path: Path) -> None:
    topics = Topics(tmp_path / "topics.json", config())
    assert shape(topics) == BORN
    assert all(topics.is_system(name) for name in BORN)
    assert topics.is_system("rmq_sys_anything")
    assert not topics.is_system("orders")


def test_switches_change_the_topics_of_a_new_broker(tmp_path: Path) -> None:
    topics = Topics(
        tmp_path / "topics.json",
        config(
            auto_create_topic_enable=False,
            trace_topic_enable=True,
            cluster_topic_enable=False,
            broker_topic_enable=False,
        ),
    )
    expected = BORN | {
        "DefaultCluster": (16, 1),
        "broker-a": (1, 1),
        "RMQ_SYS_TRACE_TOPIC": (1, 6),
    }
    del expected["TBW102"]
    assert shape(topics) == expected


def test_the_file_is_the_one_java_writes(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    topics = Topics(path, config())
    asyncio.run(topics.update(new_topic("orders", 8)))
    text = path.read_text()
    assert text.startswith('{\n\t"dataVersion":{\n\t\t"counter":1,\n\t\t"timestamp":')
    assert (
        '\t\t"orders":{\n\t\t\t"order":false,\n\t\t\t"perm":6,\n\t\t\t"readQueueNums":8,\n'
        '\t\t\t"topicFilterType":"SINGLE_TAG",\n\t\t\t"topicName":"orders",\n'
        '\t\t\t"topicSysFlag":0,\n\t\t\t"writeQueueNums":8\n\t\t}'
    ) in text


def test_topics_and_version_survive_a_restart_and_the_file_wins(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    topics = Topics(path, config())
    asyncio.run(topics.update(new_topic("orders", 8)))
    asyncio.run(topics.update(new_topic("TBW102", 2, 7)))
    again = Topics(path, config())
    assert shape(again) == BORN | {"orders": (8, 6), "TBW102": (2, 7)}
    assert again.data_version == topics.data_version
    assert again.data_version.counter == 2


def test_a_torn_file_is_read_from_its_bak(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    topics = Topics(path, config())
    asyncio.run(topics.update(new_topic("orders", 8)))
    asyncio.run(topics.update(new_topic("more", 8)))
    path.write_bytes(path.read_bytes()[:100])
    assert "orders" in Topics(path, config()).table


def test_a_file_of_a_5x_broker_is_read(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    path.write_text(
        '{"dataVersion":{"counter":3,"stateVersion":0,"timestamp":5},"topicConfigTable":{"t":{'
        '"attributes":{"+message.type":"NORMAL"},"order":false,"perm":6,"readQueueNums":2,'
        '"topicFilterType":"SINGLE_TAG","topicName":"t","topicSysFlag":0,"writeQueueNums":2}}}'
    )
    topics = Topics(path, config())
    assert shape(topics)["t"] == (2, 6)
    assert topics.data_version.counter == 3


@pytest.mark.parametrize(("asked", "made"), [(4, 4), (100, 8), (-1, 0)])
def test_a_send_creates_a_topic_like_the_default_one(tmp_path: Path, asked: int, made: int) -> None:
    topics = Topics(tmp_path / "topics.json", config())
    told: list[str] = []
    topics.on_change.append(told.append)
    topic = topics.create_for_send("orders", "TBW102", asked, TopicSysFlag.UNIT, "peer")
    assert topic is not None
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (made, made, 6)
    assert topic.topic_sys_flag == TopicSysFlag.UNIT
    assert told == ["orders"]
    assert topics.create_for_send("orders", "none", 1, 0, "peer") is topic


def test_a_send_creates_no_topic_if_creation_is_disabled(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    asyncio.run(Topics(path, config()).update(new_topic("orders", 8)))  # the file now has TBW102
    settings = config()
    topics = Topics(path, settings)
    settings.broker = settings.broker.replace(auto_create_topic_enable=False)
    assert topics.create_for_send("new", "TBW102", 4, 0, "peer") is None
    assert topics.create_for_send("new", "none", 4, 0, "peer") is None
    assert topics.create_for_send("new", "orders", 4, 0, "peer") is None  # not inheritable
    assert "new" not in topics.table


def test_internal_topics_are_created_once(tmp_path: Path) -> None:
    topics = Topics(tmp_path / "topics.json", config())
    first = topics.create_internal("%RETRY%g", 2)
    assert topics.create_internal("%RETRY%g", 7) is first
    assert topics.data_version.counter == 1


def test_ordered_topics_follow_the_name_servers(tmp_path: Path) -> None:
    topics = Topics(tmp_path / "topics.json", config())
    asyncio.run(topics.update(new_topic("a", 1)))
    asyncio.run(topics.update(new_topic("b", 1)))
    asyncio.run(topics.set_ordered(["a", "unknown"]))
    assert [topics.table[n].order for n in "ab"] == [True, False]
    version = topics.data_version
    asyncio.run(topics.set_ordered(["a"]))
    assert topics.data_version == version
    asyncio.run(topics.set_ordered(["b"]))
    assert [topics.table[n].order for n in "ab"] == [False, True]


def test_unit_flags_are_set_and_cleared(tmp_path: Path) -> None:
    topics = Topics(tmp_path / "topics.json", config())
    asyncio.run(topics.update(new_topic("a", 1, sys_flag=TopicSysFlag.UNIT_SUB)))
    topics.set_unit_flag("a", TopicSysFlag.UNIT, True)
    assert topics.table["a"].topic_sys_flag == 3
    topics.set_unit_flag("a", TopicSysFlag.UNIT_SUB, False)
    assert topics.table["a"].topic_sys_flag == 1
    topics.set_unit_flag("none", TopicSysFlag.UNIT, True)


def test_a_change_that_cannot_be_saved_is_no_change(tmp_path: Path) -> None:
    topics = Topics(tmp_path / "topics.json", config())
    asyncio.run(topics.update(new_topic("a", 1)))
    (tmp_path / "topics.json.tmp").mkdir()
    version = topics.data_version
    with pytest.raises(IsADirectoryError):
        asyncio.run(topics.update(new_topic("b", 1)))
    with pytest.raises(IsADirectoryError):
        asyncio.run(topics.delete("a"))
    assert "a" in topics.table and "b" not in topics.table
    assert topics.data_version == version


def test_a_deleted_topic_stays_deleted_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    topics = Topics(path, config())
    asyncio.run(topics.update(new_topic("a", 1)))
    assert asyncio.run(topics.delete("a"))
    assert not asyncio.run(topics.delete("a"))
    assert "a" not in Topics(path, config()).table


def test_a_topic_created_for_a_send_is_saved_at_once(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    topics = Topics(path, config())
    topics.create_for_send("orders", "TBW102", 4, 0, "127.0.0.1:1")
    again = Topics(path, config())
    assert shape(again)["orders"] == (4, 6)
    assert again.data_version == topics.data_version


def test_of_consecutive_topics_the_first_is_saved_at_once_and_the_others_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writers = []

    def write(path: Path, data: bytes) -> None:
        writers.append(threading.current_thread())
        write_atomically(path, data)
        passed.advance(10)

    monkeypatch.setattr(state_file, "write_atomically", write)
    path = tmp_path / "topics.json"
    names = [f"orders-{number}" for number in range(50)]

    async def main() -> Topics:
        topics = Topics(path, config())
        for name in names:
            topics.create_for_send(name, "TBW102", 4, 0, "127.0.0.1:1")
        # The first is saved before its message is stored: a Java broker knows only the topics in
        # the file.
        assert shape(Topics(path, config())).keys() & set(names) == {names[0]}
        await topics.file.close()
        return topics

    with stopped_monotonic() as passed:  # except while it is written: no time passes in between
        topics = asyncio.run(main())
    again = Topics(path, config())
    assert shape(again).keys() >= set(names)
    assert again.data_version == topics.data_version
    assert 2 <= len(writers) <= 3 and threading.main_thread() not in writers[1:]


def test_a_change_that_could_not_be_saved_is_not_saved_later(tmp_path: Path) -> None:
    path = tmp_path / "file" / "topics.json"
    topics = Topics(path, config())
    asyncio.run(topics.update(new_topic("orders", 4)))
    with file_in_the_way(path), pytest.raises(OSError):
        asyncio.run(topics.update(new_topic("orders", 8)))
    topics.save()
    assert shape(Topics(path, config()))["orders"] == (4, 6)


@contextlib.contextmanager
def file_in_the_way(path: Path) -> Iterator[None]:
    """A file has replaced the folder of `path`."""
    aside = path.parent.with_name("aside")
    path.parent.rename(aside)
    path.parent.write_bytes(b"in the way")
    yield
    path.parent.unlink()
    aside.rename(path.parent)


def test_beyond_the_limit_of_topics_none_is_created_for_a_send(tmp_path: Path) -> None:
    settings = config()
    topics = Topics(tmp_path / "topics.json", settings)
    settings.operation = settings.operation.replace(max_auto_created_topics=len(topics.table))
    with pytest.raises(Overloaded, match="maxAutoCreatedTopics"):
        topics.create_for_send("orders", "TBW102", 4, 0, "127.0.0.1:1")
    asyncio.run(topics.update(new_topic("orders", 4)))  # an administrator may


def test_a_save_that_fails_is_repeated_later(tmp_path: Path) -> None:
    path = tmp_path / "file" / "topics.json"
    topics = Topics(path, config())
    (tmp_path / "file").write_bytes(b"in the way")
    topics.create_for_send("orders", "TBW102", 4, 0, "127.0.0.1:1")
    with pytest.raises(OSError):
        asyncio.run(topics.save_pending())
    (tmp_path / "file").unlink()
    asyncio.run(topics.save_pending())
    assert shape(Topics(path, config()))["orders"] == (4, 6)


def test_missing_topics_that_have_messages_are_created_again(tmp_path: Path) -> None:
    topics = Topics(tmp_path / "topics.json", config())
    asyncio.run(topics.update(new_topic("known", 2)))
    topics.adopt({"known": 9, "orders": 12, "few": 1, "%RETRY%g": 1, "rmq_sys_wheel_timer": 1})
    made = {name: queues for name, (queues, _) in shape(topics).items() if name not in BORN}
    assert made == {"known": 2, "orders": 12, "few": 8, "%RETRY%g": 1}


class SlowDisk:
    """Blocks writes to a file until `go` is set; `began` is set at the start of a write."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fails: bool = False) -> None:
        self.began, self.go = threading.Event(), threading.Event()
        self._fails = fails
        self._write = state_file.write_atomically
        monkeypatch.setattr(state_file, "write_atomically", self._hold)

    def _hold(self, path: Path, data: bytes) -> None:
        self.began.set()
        assert self.go.wait(10)
        if self._fails:
            self._fails = False
            raise OSError(28, "No space left on device")
        self._write(path, data)


def test_the_loop_runs_while_a_change_is_written_and_keeps_new_topics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "topics.json"

    async def main() -> None:
        topics = Topics(path, config())
        await topics.update(new_topic("old", 1))
        told: list[str] = []
        topics.on_change.append(told.append)
        disk = SlowDisk(monkeypatch)
        changes = [
            asyncio.ensure_future(topics.update(new_topic("a", 1))),
            asyncio.ensure_future(topics.delete("old")),
        ]
        await asyncio.to_thread(disk.began.wait, 10)
        topics.create_for_send("sent", "TBW102", 4, 0, "127.0.0.1:1")  # does not wait for the disk
        topics.create_internal("internal", 1)
        assert "a" not in topics.table and "old" in topics.table
        assert told == ["sent", "internal"]
        disk.go.set()
        await asyncio.gather(*changes)
        assert told == ["sent", "internal", "a", "old"]
        assert {"a", "sent", "internal"} <= topics.table.keys() and "old" not in topics.table
        await topics.file.close()
        again = Topics(path, config())
        assert again.table.keys() == topics.table.keys()
        assert again.data_version == topics.data_version

    asyncio.run(main())


def test_a_change_whose_client_disconnects_is_still_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "topics.json"

    async def main() -> None:
        topics = Topics(path, config())
        disk = SlowDisk(monkeypatch)
        change = asyncio.ensure_future(topics.update(new_topic("a", 1)))
        await asyncio.to_thread(disk.began.wait, 10)
        change.cancel()
        closing = asyncio.ensure_future(topics.file.close())
        await asyncio.sleep(0)
        disk.go.set()
        await closing
        assert change.cancelled()
        assert "a" in topics.table and "a" in Topics(path, config()).table

    asyncio.run(main())


def test_a_change_that_cannot_be_written_keeps_topics_created_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "topics.json"

    async def main() -> None:
        topics = Topics(path, config())
        disk = SlowDisk(monkeypatch, fails=True)
        changes = [
            asyncio.ensure_future(topics.update(new_topic(name, 1))) for name in ("refused", "b")
        ]
        await asyncio.to_thread(disk.began.wait, 10)
        topics.create_internal("internal", 1)
        disk.go.set()
        refused, taken = await asyncio.gather(*changes, return_exceptions=True)
        assert isinstance(refused, OSError) and taken is None
        await topics.file.close()
        for found in (topics.table, Topics(path, config()).table):
            assert {"b", "internal"} <= found.keys() and "refused" not in found

    asyncio.run(main())


def test_a_changed_topic_stays_ordered_if_the_name_servers_order_it_meanwhile(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        topics = Topics(tmp_path / "topics.json", config())
        await topics.update(new_topic("a", 1))
        await asyncio.gather(topics.set_ordered(["a"]), topics.update(new_topic("a", 2)))
        assert (topics.table["a"].order, topics.table["a"].read_queue_nums) == (True, 2)

    asyncio.run(main())
