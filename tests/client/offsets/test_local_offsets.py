import asyncio
from pathlib import Path

import pytest

from mq.client.errors import ClientError
from mq.client.machine import files
from mq.client.offsets.local_offsets import LocalOffsetStore
from mq.protocol.bodies import MessageQueue

QUEUE = MessageQueue("topic", "broker-a", 3)
OTHER = MessageQueue("topic", "broker-a", 4)


def store(tmp_path: Path) -> LocalOffsetStore:
    return LocalOffsetStore(tmp_path, "10.0.0.1@DEFAULT", "group")


def committed(tmp_path: Path, queue: MessageQueue = QUEUE) -> int | None:
    return asyncio.run(store(tmp_path).committed(queue))


def commit(offsets: LocalOffsetStore, queue: MessageQueue, offset: int) -> None:
    offsets.update(queue, offset)
    assert asyncio.run(offsets.commit([queue])) == []


def test_the_file_has_the_path_and_format_of_java(tmp_path: Path) -> None:
    offsets = store(tmp_path)
    commit(offsets, QUEUE, 42)
    assert offsets.path == tmp_path / "10.0.0.1@DEFAULT" / "group" / "offsets.json"
    assert (
        offsets.path.read_bytes()
        == b'{"offsetTable":{{"brokerName":"broker-a","queueId":3,"topic":"topic"}:42}}'
    )


def test_a_file_of_java_is_read(tmp_path: Path) -> None:
    path = store(tmp_path).path
    path.parent.mkdir(parents=True)
    path.write_bytes(
        b'{\n\t"offsetTable":{{\n\t\t\t"brokerName":"broker-a",\n\t\t\t"queueId":3,\n'
        b'\t\t\t"topic":"topic"\n\t\t}:7\n\t}\n}'
    )
    assert committed(tmp_path) == 7
    assert committed(tmp_path, OTHER) is None


def test_offsets_of_other_queues_are_kept(tmp_path: Path) -> None:
    commit(store(tmp_path), QUEUE, 1)
    commit(store(tmp_path), OTHER, 2)
    assert (committed(tmp_path), committed(tmp_path, OTHER)) == (1, 2)


def test_concurrent_resets_of_several_queues_are_all_written(tmp_path: Path) -> None:
    queues = [MessageQueue("topic", "broker-a", number) for number in range(8)]

    async def script() -> None:
        offsets = store(tmp_path)
        for queue in queues:
            offsets.update(queue, 7)
        assert await offsets.commit(queues) == []

        async def reset(queue: MessageQueue) -> None:
            offsets.update(queue, 0)
            assert await offsets.commit([queue], again=True) == []
            offsets.forget(queue)

        await asyncio.gather(*map(reset, queues))
        assert [await offsets.committed(queue) for queue in queues] == [0] * 8

    asyncio.run(script())
    assert [committed(tmp_path, queue) for queue in queues] == [0] * 8


@pytest.mark.parametrize("torn", [b"", b'{"offsetTable":{{"broker', b"\xff\x00"])
def test_the_previous_file_is_read_if_the_last_one_is_torn(tmp_path: Path, torn: bytes) -> None:
    offsets = store(tmp_path)
    commit(offsets, QUEUE, 1)
    commit(offsets, QUEUE, 2)
    offsets.path.write_bytes(torn)
    assert committed(tmp_path) == 1


def test_a_folder_that_cannot_be_written_to_is_named_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "10.0.0.1@DEFAULT").write_bytes(b"a file where a folder must be")
    offsets = store(tmp_path)
    offsets.update(QUEUE, 1)
    (error,) = asyncio.run(offsets.commit([QUEUE]))
    assert "offsets.json" in str(error)


def test_a_folder_may_be_given_as_a_string(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    offsets = LocalOffsetStore("~/offsets", "10.0.0.1@DEFAULT", "group")
    commit(offsets, QUEUE, 1)
    assert (tmp_path / "offsets" / "10.0.0.1@DEFAULT" / "group" / "offsets.json").exists()


@pytest.mark.parametrize("client_id", ["../x", "a/b", "..", ""])
def test_a_client_id_cannot_lead_out_of_the_folder(tmp_path: Path, client_id: str) -> None:
    with pytest.raises(ClientError, match="cannot name the folder"):
        LocalOffsetStore(tmp_path, client_id, "group")


def test_a_torn_file_does_not_replace_the_good_backup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill between two renames must not leave only a torn file, or none."""
    commit(store(tmp_path), QUEUE, 1)
    commit(store(tmp_path), QUEUE, 2)
    path = store(tmp_path).path
    good = path.with_name("offsets.json.bak").read_bytes()
    path.write_bytes(path.read_bytes()[:5])

    renamed: list[str] = []
    replace = files.replace

    def note(source: Path, target: Path) -> None:
        renamed.append(target.name)
        replace(source, target)

    monkeypatch.setattr(files, "replace", note)
    commit(store(tmp_path), OTHER, 3)
    assert renamed == ["offsets.json"]
    assert path.with_name("offsets.json.bak").read_bytes() == good
    assert (committed(tmp_path), committed(tmp_path, OTHER)) == (1, 3)
