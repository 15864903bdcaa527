"""The compressed body of REGISTER_BROKER, and the checksum of both forms.

The compressed form is not a deflated JSON document but has its own layout
(RegisterBrokerBody.encode): parts with an i32 length and their bytes, all compressed by zlib. The
parts are the data version as JSON; an i32 count and the topics as text, with fields separated by
blanks; the filter servers as a JSON array; from 5.0 on an i32 count and the queue mappings of
static topics as JSON.
"""

import zlib

from mq.protocol import fastjson
from mq.protocol.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicFilterType,
    TopicQueueMappingInfo,
)
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.frame import INT

# 100,000 topics with the longest names are about 16 MiB. More comes from a broken or hostile peer:
# a frame of 16 MiB can hold 16 GiB of zeros.
MAX_UNCOMPRESSED = 64 * 1024 * 1024


def body_crc32(body: bytes | memoryview) -> int:
    """The checksum in the header's bodyCrc32: without the sign bit (UtilAll.crc32)."""
    return zlib.crc32(body) & 0x7FFFFFFF


def compress(body: RegisterBrokerBody) -> bytes:
    """The compressed form as written by a 4.9.8 broker."""
    wrapper = body.topic_config_serialize_wrapper
    deflater = zlib.compressobj(9)
    out = [deflater.compress(_sized(wrapper.data_version.encode()))]
    out.append(deflater.compress(INT.pack(len(wrapper.topic_config_table))))
    for topic in wrapper.topic_config_table.values():
        out.append(deflater.compress(_sized(_topic_text(topic).encode())))
    out.append(deflater.compress(_sized(fastjson.dumps(list(body.filter_server_list)))))
    out.append(deflater.flush())
    return b"".join(out)


def decompress(data: bytes | memoryview, *, mappings: bool = False) -> RegisterBrokerBody:
    """Decode the compressed form; `mappings` if the broker has release 5.0 or later.

    Raises:
        RemoteProtocolError: it is damaged or unreasonably large.
    """
    reader = _Reader(_inflate(data))
    wrapper = TopicConfigAndMappingSerializeWrapper(data_version=DataVersion.decode(reader.part()))
    for _ in range(reader.count()):
        topic = _topic_from_text(reader.text())
        assert topic.topic_name is not None
        wrapper.topic_config_table[topic.topic_name] = topic
    servers = _server_list(reader.part())
    if mappings:
        infos = [TopicQueueMappingInfo.decode(reader.part()) for _ in range(reader.count())]
        wrapper.topic_queue_mapping_info_map = {m.topic: m for m in infos if m.topic is not None}
    return RegisterBrokerBody(topic_config_serialize_wrapper=wrapper, filter_server_list=servers)


def _server_list(data: bytes) -> list[str]:
    try:
        servers = fastjson.loads(data)
    except ValueError as error:
        raise RemoteProtocolError(f"register broker: filter servers: {error}") from None
    if not isinstance(servers, list) or not all(isinstance(s, str) for s in servers):
        raise RemoteProtocolError("register broker: the filter servers are not a list of text")
    return servers


def _inflate(data: bytes | memoryview) -> bytes:
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(data, MAX_UNCOMPRESSED)
    except zlib.error as error:
        raise RemoteProtocolError(f"register broker: the body does not inflate: {error}") from None
    if inflater.unconsumed_tail:
        raise RemoteProtocolError(f"register broker: the body inflates to over {MAX_UNCOMPRESSED}")
    if not inflater.eof:
        raise RemoteProtocolError("register broker: the compressed body is cut short")
    return plain


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def count(self) -> int:
        if self._position + 4 > len(self._data):
            raise RemoteProtocolError("register broker: the body is cut short")
        (number,) = INT.unpack_from(self._data, self._position)
        self._position += 4
        if not 0 <= number <= len(self._data):
            raise RemoteProtocolError(f"register broker: {number} is no length or count")
        return int(number)

    def part(self) -> bytes:
        length = self.count()
        if self._position + length > len(self._data):
            raise RemoteProtocolError("register broker: the body is cut short")
        part = self._data[self._position : self._position + length]
        self._position += length
        return part

    def text(self) -> str:
        try:
            return self.part().decode()
        except UnicodeDecodeError:
            raise RemoteProtocolError("register broker: a topic is not UTF-8") from None


def _sized(data: bytes) -> bytes:
    return INT.pack(len(data)) + data


def _topic_text(topic: TopicConfig) -> str:
    return (
        f"{topic.topic_name} {topic.read_queue_nums} {topic.write_queue_nums} {topic.perm} "
        f"{topic.topic_filter_type.name}"
    )


def _topic_from_text(text: str) -> TopicConfig:
    """Parse a topic from TopicConfig.encode; 5.x appends attributes, which a name server never
    uses.
    """
    parts = text.split(" ")
    try:
        name, reads, writes, permission, filter_type = parts[:5]
        return TopicConfig(
            topic_name=name,
            read_queue_nums=int(reads),
            write_queue_nums=int(writes),
            perm=int(permission),
            topic_filter_type=TopicFilterType[filter_type],
        )
    except (KeyError, ValueError):
        raise RemoteProtocolError(f"register broker: {text[:80]!r} is not a topic") from None
