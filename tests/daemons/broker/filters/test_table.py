"""config/consumerFilter.json, byte for byte as Java 4.9.7 writes it, and its use at a start."""

import asyncio
from pathlib import Path

import pytest

from mq.daemons.broker.filters.sql92 import read_filter
from mq.daemons.broker.filters.table import ConsumerFilters
from mq.protocol.bodies import SubscriptionData
from tests.daemons.broker.settings import broker_settings

DAY = 86_400


class Clock:
    now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def table(path: Path, clock: Clock, **config: int) -> ConsumerFilters:
    filters = ConsumerFilters(path / "consumerFilter.json", broker_settings(**config), clock)
    filters.load()
    return filters


def wants(text: str, version: int = 7, topic: str = "t") -> SubscriptionData:
    return SubscriptionData(
        topic=topic, sub_string=text, expression_type="SQL92", sub_version=version
    )


FILE = b"""{
\t"filterDataByTopic":{
\t\t"t":{
\t\t\t"groupFilterData":{
\t\t\t\t"g":{
\t\t\t\t\t"bloomFilterData":{
\t\t\t\t\t\t"bitNum":112,
\t\t\t\t\t\t"bitPos":[22,87,58]
\t\t\t\t\t},
\t\t\t\t\t"bornTime":1700000000000,
\t\t\t\t\t"clientVersion":7,
\t\t\t\t\t"consumerGroup":"g",
\t\t\t\t\t"dead":false,
\t\t\t\t\t"deadTime":0,
\t\t\t\t\t"expression":"a > 1",
\t\t\t\t\t"expressionType":"SQL92",
\t\t\t\t\t"topic":"t"
\t\t\t\t}
\t\t\t},
\t\t\t"topic":"t"
\t\t}
\t}
}"""


def test_the_file_is_as_java_writes_it(tmp_path: Path, clock: Clock) -> None:
    filters = table(tmp_path, clock)
    filters.register("g", [wants("a > 1")])
    asyncio.run(filters.save())
    assert (tmp_path / "consumerFilter.json").read_bytes() == FILE


def test_a_group_alive_at_the_stop_is_dead_at_the_start(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "consumerFilter.json").write_bytes(FILE)
    clock.now += 100
    data = table(tmp_path, clock).get("t", "g")
    assert data is not None and data.dead_time == 1_700_000_070_000
    clock.now -= 90
    data = table(tmp_path, clock).get("t", "g")
    assert data is not None and data.dead_time == data.born_time  # not before its birth


def test_a_file_for_another_bloom_filter_is_not_loaded(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "consumerFilter.json").write_bytes(FILE)
    assert table(tmp_path, clock, expect_consumer_num_use_filter=64).table == {}


@pytest.mark.parametrize(
    "content",
    [
        b"[]",
        b'{"filterDataByTopic":{"t":7}}',
        b'{"filterDataByTopic":{"t":{"groupFilterData":{"g":{"topic":"t"}}}}}',
        FILE.replace(b"1700000000000", b'"then"'),
    ],
)
def test_a_damaged_file_is_kept_aside(tmp_path: Path, clock: Clock, content: bytes) -> None:
    (tmp_path / "consumerFilter.json").write_bytes(content)
    assert table(tmp_path, clock).table == {}
    assert (tmp_path / "consumerFilter.json.broken").read_bytes() == content


def test_a_filter_dead_for_a_day_is_removed(tmp_path: Path, clock: Clock) -> None:
    filters = table(tmp_path, clock)
    filters.register("g", [wants("a > 1"), wants("a > 1", topic="other")])
    filters.register("g", [wants("a > 1", topic="other")])
    clock.now += DAY - 1
    asyncio.run(filters.save())
    assert filters.get("t", "g") is not None
    clock.now += 2
    asyncio.run(filters.save())
    assert filters.get("t", "g") is None
    assert filters.get("other", "g") is not None


def test_a_newer_invalid_expression_removes_the_old_one(tmp_path: Path, clock: Clock) -> None:
    filters = table(tmp_path, clock)
    filters.register("g", [wants("a > 1")])
    filters.register("g", [wants("a >", version=8)])
    assert filters.table == {}
    filters.register("g", [wants("a > 1", topic="../t")])
    assert filters.table == {}


def test_a_new_expression_has_a_new_birth_time_and_the_same_one_does_not(
    tmp_path: Path, clock: Clock
) -> None:
    filters = table(tmp_path, clock)
    filters.register("g", [wants("a > 1")])
    clock.now += 60
    filters.register("g", [wants("a > 1", version=8)])
    data = filters.get("t", "g")
    assert data is not None
    assert (data.client_version, data.born_time) == (8, 1_700_000_000_000)
    filters.register("g", [wants("a > 2", version=9)])
    data = filters.get("t", "g")
    assert data is not None
    assert (data.expression, data.born_time) == ("a > 2", 1_700_000_060_000)


def test_one_heartbeat_has_a_limited_amount_of_text_parsed(tmp_path: Path, clock: Clock) -> None:
    filters = table(tmp_path, clock)
    told = [wants(f"a = '{n:x<10000}'", topic=f"t{n}") for n in range(12)]
    first = filters.unread([("g", told)])
    assert len(first) == 6
    for text in first:
        read_filter(text)
    filters.register("g", told, read=False)
    assert len(filters.table) == 6
    rest = filters.unread([("g", told)])  # the others are read with the next one
    for text in rest:
        read_filter(text)
    filters.register("g", told, read=False)
    assert len(filters.table) == 12


def test_settings_for_an_invalid_bloom_filter_are_refused(tmp_path: Path, clock: Clock) -> None:
    with pytest.raises(ValueError, match="100 %"):
        table(tmp_path, clock, max_error_rate_of_bloom_filter=100)
