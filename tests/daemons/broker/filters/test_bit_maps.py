"""Bit maps of matched filters in consume queue extensions: written, read, kept, deleted."""

import json
import shutil
import struct
from pathlib import Path

import pytest

from mq.daemons.broker.app import Broker
from mq.daemons.broker.filters.bloom import has_bits
from mq.daemons.broker.store import layout
from mq.daemons.broker.store.errors import StoreLoadError
from mq.daemons.broker.store.log.residency import Residency
from mq.protocol.bodies import QueryConsumeQueueResponseBody
from mq.protocol.codes import RequestCode
from tests.daemons.broker.filters.pulls import GROUP, TOPIC, beat, fill, pull, serve, subscription
from tests.daemons.peer import Peer

WITH_MAPS = {
    "enableConsumeQueueExt": "true",
    "enableCalcFilterBitMap": "true",
    "mappedFileSizeConsumeQueueExt": "4096",
}


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """No record is in memory without a wait, so that bit maps are read."""
    missing = Residency.missing

    def missing_but_to_those_that_wait(self: Residency, physical: int, size: int) -> list[int]:
        return missing(self, physical, size) if self.waits else [0]

    monkeypatch.setattr(Residency, "holds", lambda *_: False)
    monkeypatch.setattr(Residency, "missing", missing_but_to_those_that_wait)


def ext_folder(tmp_path: Path) -> Path:
    return tmp_path / "store/consumequeue_ext" / TOPIC / "0"


def born_earlier(broker: Broker) -> None:
    """The bit map of a message of the filter's first millisecond does not count."""
    data = broker.stores.filters.get(TOPIC, GROUP)
    assert data is not None
    data.born_time -= 1000


def test_each_message_of_a_filtered_topic_has_a_unit_with_its_groups(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        await fill(peer, 1)  # before any filter exists
        await beat(peer, subscription("a = '2'"))
        await fill(peer, 2, start=1)
        queue = broker.stores.messages.queue(TOPIC, 0)
        codes = [code for _, _, code in layout.ENTRY.iter_unpack(queue.entries(0, 10))]
        tag = codes[0]
        assert codes == [tag, -(1 << 63), -(1 << 63) + 34]
        data = broker.stores.filters.get(TOPIC, GROUP)
        assert queue.extension is not None and data is not None
        units = [queue.extension.unit(code) for code in codes]
        assert units[0] is None and units[1] is not None and units[2] is not None
        assert (units[1].tags_code, units[1].bit_map) == (tag, bytes(14))
        assert has_bits(units[2].bit_map, data.bit_positions)
        assert queue.extension.unit(codes[2] + 1) is None

    serve(tmp_path, script, **WITH_MAPS)
    content = (ext_folder(tmp_path) / ("0" * 20)).read_bytes()
    assert len(content) == 4096
    size, _, _, map_size = struct.unpack(">hqqh", content[:20])
    assert (size, map_size, content[20:34]) == (34, 14, bytes(14))
    assert content[68:] == bytes(4096 - 68)


@pytest.mark.usefixtures("cold")
def test_a_bit_map_without_the_groups_bits_excludes_a_message(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        await beat(peer, subscription("a < 3"))
        born_earlier(broker)
        await fill(peer, 6)
        assert (await pull(peer))[1] == ["0", "1", "2"]
        # Only the bit maps can exclude messages now: the filter itself would accept all.
        data = broker.stores.filters.get(TOPIC, GROUP)
        assert data is not None
        data.expression, data._filter = "a < 100", None
        assert (await pull(peer))[1] == ["0", "1", "2"]
        data.born_time += 100_000  # messages older than the filter have no bits of it
        assert (await pull(peer))[1] == ["0", "1", "2", "3", "4", "5"]

    serve(tmp_path, script, **WITH_MAPS)


def test_tags_are_found_through_extension_addresses(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        await beat(peer, subscription("a < 3"))
        await fill(peer, 3)
        assert (await pull(peer, subscription="odd"))[1] == ["0", "1", "2"]
        assert (await pull(peer, subscription="even"))[1] == []

    serve(tmp_path, script, **WITH_MAPS)

    # with extensions disabled, they are still read
    async def again(broker: Broker, peer: Peer) -> None:
        assert (await pull(peer, subscription="odd"))[1] == ["0", "1", "2"]
        await fill(peer, 1, start=3)
        assert (await pull(peer, 3, subscription="odd"))[1] == ["3"]

    serve(tmp_path, again)


@pytest.mark.usefixtures("cold")
def test_lost_units_hide_no_message_and_their_addresses_are_not_reused(tmp_path: Path) -> None:
    async def first(broker: Broker, peer: Peer) -> None:
        await beat(peer, subscription("a < 3"))
        await fill(peer, 3)

    async def second(broker: Broker, peer: Peer) -> None:
        await beat(peer, subscription("a < 3"))
        # The consumer checks the tag itself.
        assert (await pull(peer, subscription="even"))[1] == ["0", "1", "2"]
        assert (await pull(peer))[1] == ["0", "1", "2"]
        await fill(peer, 1, start=3)
        entry = broker.stores.messages.queue(TOPIC, 0).entry(3)
        assert entry is not None and entry[2] == -(1 << 63) + 4096

    serve(tmp_path, first, **WITH_MAPS)
    shutil.rmtree(tmp_path / "store/consumequeue_ext")
    serve(tmp_path, second, **WITH_MAPS)


@pytest.mark.parametrize("units_lost", [False, True])
@pytest.mark.usefixtures("cold")
def test_entries_rebuilt_from_the_log_find_their_units(tmp_path: Path, units_lost: bool) -> None:
    before: list[int] = []

    def codes(broker: Broker) -> list[int]:
        entries = broker.stores.messages.queue(TOPIC, 0).entries(0, 10)
        return [code for _, _, code in layout.ENTRY.iter_unpack(entries)]

    async def first(broker: Broker, peer: Peer) -> None:
        await fill(peer, 1)
        await beat(peer, subscription("a < 3"))
        await fill(peer, 3, start=1)
        before.extend(codes(broker))

    async def second(broker: Broker, peer: Peer) -> None:
        assert codes(broker) == ([before[0]] * 4 if units_lost else before)
        await beat(peer, subscription("a < 3"))
        assert (await pull(peer))[1] == ["0", "1", "2"]

    serve(tmp_path, first, **WITH_MAPS)
    # As after a crash without a check point: the whole log is read.
    (tmp_path / "store/checkpoint").unlink()
    (tmp_path / "store/abort").touch()
    if units_lost:
        with (ext_folder(tmp_path) / ("0" * 20)).open("r+b") as file:
            file.write(bytes(4096))
    serve(tmp_path, second, **WITH_MAPS)


def test_files_of_another_size_are_refused(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        await beat(peer, subscription("a < 3"))
        await fill(peer, 3)

    serve(tmp_path, script, **WITH_MAPS)
    with pytest.raises(StoreLoadError, match="does not fit mappedFileSizeConsumeQueueExt"):
        serve(tmp_path, script, **{**WITH_MAPS, "mappedFileSizeConsumeQueueExt": "2048"})


def test_an_administrator_sees_units_and_their_contents(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        await fill(peer, 1)
        await beat(peer, subscription("a < 2"))
        born_earlier(broker)
        await fill(peer, 2, start=1)
        fields = {"topic": TOPIC, "queueId": "0", "index": "0", "count": "3"}
        reply = await peer.ask(RequestCode.QUERY_CONSUME_QUEUE, {**fields, "consumerGroup": GROUP})
        plain, one, two = QueryConsumeQueueResponseBody.decode(reply.body).queue_data
        assert plain.extend_data_json is None and plain.bit_map is None
        shown = json.loads(one.extend_data_json or "")
        assert (shown["size"], shown["tagsCode"]) == (34, plain.tags_code)
        assert one.bit_map is not None and len(one.bit_map) == 112 + 2
        assert (one.eval, two.eval) == (True, False)
        assert (one.bit_map.count("1"), (two.bit_map or "").count("1")) == (3, 0)

    serve(tmp_path, script, **WITH_MAPS)


@pytest.mark.usefixtures("cold")
def test_units_continue_in_the_next_file_and_after_a_restart(tmp_path: Path) -> None:
    count = 4096 // 34 + 5

    async def first(broker: Broker, peer: Peer) -> None:
        await beat(peer, subscription("a >= 118"))
        await fill(peer, count)
        assert (await pull(peer))[1] == [str(n) for n in range(118, count)]

    async def second(broker: Broker, peer: Peer) -> None:
        await beat(peer, subscription("a >= 118"))
        await fill(peer, 3, start=count)
        queue = broker.stores.messages.queue(TOPIC, 0)
        assert queue.extension is not None
        for index, (_, _, code) in enumerate(layout.ENTRY.iter_unpack(queue.entries(0, 800))):
            unit = queue.extension.unit(code)
            assert unit is not None, index
            assert (unit.bit_map != bytes(14)) is (index >= 118)

    serve(tmp_path, first, **WITH_MAPS)
    files = sorted(path.name for path in ext_folder(tmp_path).iterdir())
    assert files == [f"{0:020d}", f"{4096:020d}"]
    # 120 units of 34 bytes leave 16: the end is marked, because a unit must leave 4.
    content = (ext_folder(tmp_path) / files[0]).read_bytes()
    assert content[120 * 34 :] == b"\xff\xff" + bytes(14)
    serve(tmp_path, second, **WITH_MAPS)


def test_the_extension_of_a_deleted_topic_is_deleted(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        await beat(peer, subscription("a < 3"))
        await fill(peer, 3)
        await broker.stores.messages.checkpointer.checkpoint()
        assert ext_folder(tmp_path).is_dir()
        broker.stores.messages.queues.delete_topic(TOPIC)
        assert not ext_folder(tmp_path).parent.exists()

    serve(tmp_path, script, **WITH_MAPS)


def test_units_that_no_entry_needs_are_cleaned(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        await beat(peer, subscription("a < 3"))
        await fill(peer, 300)
        await broker.stores.messages.checkpointer.checkpoint()
        queue = broker.stores.messages.queue(TOPIC, 0)
        entry = queue.entry(250)
        assert entry is not None
        queue.set_minimum(entry[0])
        queue.remove_files_before(entry[0])
        assert [path.name for path in ext_folder(tmp_path).iterdir()] == [f"{8192:020d}"]
        assert queue.extension is not None
        assert queue.extension.unit(entry[2]) is not None
        assert queue.extension.unit(-(1 << 63)) is None

    serve(tmp_path, script, **WITH_MAPS)
