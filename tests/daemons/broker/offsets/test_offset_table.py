import asyncio
from pathlib import Path

import pytest

from mq.daemons.broker.offsets.offset_table import ConsumerOffsets


def test_the_file_is_the_one_java_writes_and_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "consumerOffset.json"

    async def main() -> None:
        offsets = ConsumerOffsets(path)
        offsets.commit("g1", "%RETRY%g1", 0, 0)
        for queue_id, offset in enumerate((25, 24, 25, 26)):
            offsets.commit("g1", "TopicTest", queue_id, offset)
        await offsets.save()
        assert path.read_text() == (
            '{\n\t"offsetTable":{\n\t\t"%RETRY%g1@g1":{0:0\n\t\t},\n'
            '\t\t"TopicTest@g1":{0:25,1:24,2:25,3:26\n\t\t}\n\t}\n}'
        )
        again = ConsumerOffsets(path)
        assert again.query("g1", "TopicTest", 3) == 26
        assert again.query("g1", "TopicTest", 4) == -1
        assert again.query("g2", "TopicTest", 0) == -1

    asyncio.run(main())


def test_nothing_is_written_when_nothing_changed(tmp_path: Path) -> None:
    path = tmp_path / "consumerOffset.json"

    async def main() -> None:
        offsets = ConsumerOffsets(path)
        await offsets.save()
        assert not path.exists()
        offsets.commit("g", "t", 0, 5)
        await offsets.save()
        path.unlink()
        offsets.commit("g", "t", 0, 5)
        await offsets.save()
        assert not path.exists()

    asyncio.run(main())


def test_a_save_that_fails_is_retried(tmp_path: Path) -> None:
    path = tmp_path / "consumerOffset.json"
    (tmp_path / "consumerOffset.json.tmp").mkdir()

    async def main() -> None:
        offsets = ConsumerOffsets(path)
        offsets.commit("g", "t", 0, 5)
        await offsets.save()
        assert not path.exists()
        (tmp_path / "consumerOffset.json.tmp").rmdir()
        await offsets.save()
        assert path.exists()

    asyncio.run(main())


def test_an_invalid_offset_file_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "consumerOffset.json"
    path.with_name("consumerOffset.json.bak").write_text('{"offsetTable":{"t@g":{0:7}}}')
    for text in ('{"offsetTable":{"t@g":{"x":1}}}', '{"offsetTable":[]}', "[]", "{"):
        path.write_text(text)
        assert ConsumerOffsets(path).query("g", "t", 0) == 7


def test_an_offset_that_decreases_is_stored_and_logged(tmp_path: Path, caplog: object) -> None:
    offsets = ConsumerOffsets(tmp_path / "o.json")
    offsets.commit("g", "t", 0, 5)
    offsets.commit("g", "t", 0, 3)
    assert offsets.query("g", "t", 0) == 3


def test_topics_and_groups_are_found_cloned_and_removed(tmp_path: Path) -> None:
    offsets = ConsumerOffsets(tmp_path / "o.json")
    offsets.commit("g", "t", 0, 5)
    offsets.commit("g", "u", 1, 6)
    offsets.commit("gg", "t", 0, 9)
    offsets.commit("gg", "tt", 0, 1)
    assert offsets.topics_of_group("g") == ["t", "u"]
    assert offsets.groups_of_topic("t") == ["g", "gg"]
    offsets.clone("g", "new", "u")
    assert offsets.queues("new", "u") == {1: 6}
    offsets.clone("none", "new", "t")
    assert offsets.queues("new", "t") == {}
    offsets.remove_topic("t")
    assert offsets.groups_of_topic("t") == []
    assert offsets.groups_of_topic("tt") == ["gg"]
    offsets.remove_group("g")
    assert offsets.topics_of_group("g") == []
    assert offsets.topics_of_group("gg") == ["tt"]


def test_the_least_offset_of_all_groups_counts_only_stored_messages(tmp_path: Path) -> None:
    offsets = ConsumerOffsets(tmp_path / "o.json")
    for group, first, second in (("a", 5, 50), ("b", 3, 40), ("c", 1, 60)):
        offsets.commit(group, "t", 0, first)
        offsets.commit(group, "t", 1, second)
    assert offsets.least_of_all_groups("t", {0: 2, 1: 0}) == {0: 3, 1: 40}
    assert offsets.least_of_all_groups("t", {0: 2, 1: 0}, ["b"]) == {0: 5, 1: 50}


def test_offsets_with_both_copies_damaged_are_reported_with_the_repair(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "consumerOffset.json"
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (tmp_path / name).write_bytes(b'{"offsetTable":{"T@g":{0:')
    assert ConsumerOffsets(path).table == {}
    line = caplog.messages[-1]
    for text in (
        f"{path}.broken or {path}.bak.broken",
        "no group has an offset",
        "stop the daemon",
    ):
        assert text in line


def test_a_store_without_offsets_reports_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert ConsumerOffsets(tmp_path / "consumerOffset.json").table == {}
    assert caplog.messages == []
