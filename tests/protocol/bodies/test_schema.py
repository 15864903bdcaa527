"""The declarations of bodies: their schema, and that they write what Java writes."""

import subprocess
import sys
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import GenericAlias, UnionType
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.protocol import bodies
from mq.protocol.bodies import (
    Body,
    BrokerData,
    Connection,
    ConsumerOffsetSerializeWrapper,
    ConsumeStats,
    HeartbeatData,
    LockBatchResponseBody,
    MessageQueue,
    OffsetWrapper,
    TopicList,
    TopicRouteData,
)
from mq.protocol.bodies.enums import MessageModel
from mq.protocol.codes import ONLY_SNODE, LanguageCode
from mq.protocol.errors import LocalProtocolError, RemoteProtocolError
from mq.protocol.fastjson import loads

VECTORS = Path(__file__).parents[2] / "vectors"
ALL: list[type[Body]] = [
    getattr(bodies, name)
    for subject, names in bodies.SUBJECTS.items()
    for name in names
    if subject not in ("schema", "enums")
]


def test_a_route_is_read() -> None:
    route = TopicRouteData.decode(
        b'{"brokerDatas":[{"brokerAddrs":{0:"127.0.0.1:10911",1:"x:1"},"brokerName":"a",'
        b'"cluster":"c"}],"filterServerTable":{},"queueDatas":[{"brokerName":"a","perm":6,'
        b'"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}],"unknown":[{}]}'
    )
    assert route.broker_datas[0].broker_addrs == {0: "127.0.0.1:10911", 1: "x:1"}
    assert route.queue_datas[0].perm == 6
    assert route.order_topic_conf is None


def test_a_route_is_written_with_bare_integer_keys_unless_it_shall_be_standard() -> None:
    data = BrokerData(cluster="c", broker_name="a", broker_addrs={0: "h:1"})
    assert data.encode() == b'{"brokerAddrs":{0:"h:1"},"brokerName":"a","cluster":"c"}'
    standard = data.encode(standard=True)
    assert standard == b'{"brokerAddrs":{"0":"h:1"},"brokerName":"a","cluster":"c"}'
    assert BrokerData.decode(standard) == data


def test_maps_by_message_queue_are_read_and_written() -> None:
    text = (
        b'{"consumeTps":0.0,"offsetTable":{{"brokerName":"b","queueId":2,"topic":"t"}:'
        b'{"brokerOffset":5,"consumerOffset":3,"lastTimestamp":0}}}'
    )
    stats = ConsumeStats.decode(text)
    queue = MessageQueue("t", "b", 2)
    assert stats.offset_table == {queue: OffsetWrapper(broker_offset=5, consumer_offset=3)}
    assert stats.encode() == text
    assert ConsumeStats.decode(stats.encode(standard=True)) == stats


def test_sets_are_written_in_order() -> None:
    assert TopicList(topic_list={"b", "a"}).encode() == b'{"topicList":["a","b"]}'
    queues = {MessageQueue("t", "b", 1), MessageQueue("t", "a", 2), MessageQueue("s", "b", 3)}
    assert [
        q["queueId"] for q in LockBatchResponseBody(lock_ok_mq_set=queues).to_plain()["lockOKMQSet"]
    ] == [3, 2, 1]


def test_null_and_missing_fields_take_their_defaults() -> None:
    wrapper = ConsumerOffsetSerializeWrapper.decode(b'{"offsetTable":null}')
    assert wrapper.offset_table == {}
    wrapper.offset_table["t@g"] = {0: 1}
    assert ConsumerOffsetSerializeWrapper().offset_table == {}


def test_enums_go_by_name_and_unknown_ones_read_as_none() -> None:
    connection = Connection.decode(b'{"clientId":"c","language":"GO","version":409}')
    assert connection.language is LanguageCode.GO
    assert b'"language":"GO"' in connection.encode()
    assert Connection.decode(b'{"language":"COBOL"}').language is None
    text = b'{"consumerDataSet":[{"messageModel":"CLUSTERING"}]}'
    assert HeartbeatData.decode(text).consumer_data_set[0].message_model is MessageModel.CLUSTERING


def test_numbers_as_text_are_read() -> None:
    assert BrokerData.decode(b'{"brokerAddrs":{"0":1}}').broker_addrs == {0: "1"}
    assert OffsetWrapper.decode(b'{"brokerOffset":"5"}').broker_offset == 5


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"[]", "^TopicRouteData: an object expected"),
        (b"nope", "^TopicRouteData: at character 0"),
        (b'{"queueDatas":{}}', r"^TopicRouteData\.queueDatas: a list expected"),
        (b'{"queueDatas":[{"perm":"x"}]}', r"\.queueDatas\.perm: a whole number expected, not 'x'"),
        (b'{"brokerDatas":[{"brokerAddrs":{"x":"h"}}]}', r"\.brokerAddrs: a whole number|'x'"),
        (b'{"filterServerTable":{"a":[[]]}}', r"filterServerTable\['a'\]: text expected, not \[\]"),
    ],
)
def test_malformed_bodies_are_refused_by_path(text: bytes, reason: str) -> None:
    with pytest.raises(RemoteProtocolError, match=reason):
        TopicRouteData.decode(text)


@pytest.mark.parametrize("value", [{"x": object()}, {1: 2}, 5])
def test_values_of_the_wrong_type_are_not_written(value: Any) -> None:
    with pytest.raises(LocalProtocolError, match="TopicRouteData"):
        TopicRouteData(filter_server_table=value).encode()


def test_the_constructor_names_an_unknown_field() -> None:
    with pytest.raises(TypeError, match="TopicList has no field topics"):
        TopicList(topics=[])  # type: ignore[call-arg]


def test_a_declaration_needs_a_default() -> None:
    with pytest.raises(TypeError, match=r"Wrong\.names needs a default"):

        class Wrong(Body):
            names: list[str]


def test_the_index_of_subjects_is_complete() -> None:
    for subject, names in bodies.SUBJECTS.items():
        module = import_module(f"mq.protocol.bodies.{subject}")
        defined = [
            name
            for name, value in vars(module).items()
            if isinstance(value, type)
            and not name.startswith("_")
            and value.__module__ == module.__name__
        ]
        helpers = {"BodyField"} if subject == "schema" else set()
        assert sorted(set(defined) - helpers) == sorted(names), subject


def test_one_subject_is_imported_without_the_others() -> None:
    program = (
        "import sys, mq.protocol.bodies.topic\n"
        "print(*sorted(name for name in sys.modules if name.startswith('mq.protocol.bodies.')))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == [
        f"mq.protocol.bodies.{name}" for name in ("common", "enums", "schema", "topic")
    ]


def java_bodies() -> list[tuple[str, str, bytes, bytes]]:
    return [
        (folder, name, fresh.encode(), filled.encode())
        for folder in ("4.9", "5.5")
        for line in (VECTORS / folder / "bodies.tsv").read_text().splitlines()
        for name, fresh, filled in [line.split("\t")]
    ]


# What Java writes from getters that compute, and never reads.
COMPUTED = {"minTimeStampStr", "maxTimeStampStr", "consumeTimeStampStr", "leader"}


def without_computed(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_computed(v) for k, v in value.items() if k not in COMPUTED}
    return [without_computed(v) for v in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("folder", "name", "fresh", "filled"), java_bodies(), ids=lambda value: str(value)[:30]
)
def test_what_java_wrote_is_read_and_written_alike(
    folder: str, name: str, fresh: bytes, filled: bytes
) -> None:
    if name == "MessageQueue":
        return  # not a body of its own
    body = getattr(bodies, name)
    body.decode(fresh)
    again = body.decode(filled).encode()
    if any(name.encode() in filled for name in COMPUTED):
        assert loads(again) == without_computed(loads(filled))
    else:
        assert again == filled


def test_java_has_written_every_body() -> None:
    written = {name for _, name, _, _ in java_bodies()}
    released = {body.__name__ for body in ALL if body.RELEASE != ONLY_SNODE}
    assert released <= written  # the snode branch was never released


def values_of(annotation: Any) -> st.SearchStrategy[Any]:
    if isinstance(annotation, UnionType):
        return values_of(annotation.__args__[0])
    if isinstance(annotation, GenericAlias):
        *keys, values = map(values_of, annotation.__args__)
        if annotation.__origin__ is dict:
            return st.dictionaries(keys[0], values, max_size=2)
        if annotation.__origin__ is set:
            return st.sets(values, max_size=2)
        return st.lists(values, max_size=2)
    if annotation is MessageQueue:
        return st.builds(MessageQueue, st.text(), st.text(), values_of(int))
    if issubclass(annotation, Enum):
        return st.sampled_from(annotation)
    if issubclass(annotation, Body):
        return bodies_of(annotation)
    scalars: dict[Any, st.SearchStrategy[Any]] = {
        str: st.text(max_size=5),
        int: st.integers(-(2**63), 2**63 - 1),
        float: st.floats(allow_nan=False, allow_infinity=False),
        bool: st.booleans(),
    }
    return scalars[annotation]


def bodies_of(body: type[Body]) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(
        {}, optional={f.name: values_of(f.annotation) for f in body.FIELDS}
    ).map(lambda values: body(**values))


@given(st.data())
def test_every_body_is_read_back_as_it_was_written(data: st.DataObject) -> None:
    body = data.draw(bodies_of(data.draw(st.sampled_from(ALL))))
    if "$ref" in repr(body):
        return
    assert type(body).decode(body.encode()) == body
    standard = body.encode(standard=True)
    orjson.loads(standard)
    assert type(body).decode(standard) == body
