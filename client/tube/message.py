"""The messages that a TubeMQ consumer receives."""

from typing import NamedTuple

from mq.protocol.tube.payload import MESSAGE_TIME, MESSAGE_TYPE, parse_attributes


class TubeMessage(NamedTuple):
    """A message as stored at its broker.

    Attributes:
        topic: its topic.
        body: its bytes.
        message_id: the number that its broker assigned.
        flag: as set by the producer; the lowest bit means that there are attributes.
        attribute_text: its attributes as received, `k=v,k=v`; "" without any.
    """

    topic: str
    body: bytes
    message_id: int
    flag: int
    attribute_text: str

    @property
    def attributes(self) -> dict[str, str]:
        """Its attributes; if a name occurs twice the first value counts."""
        return parse_attributes(self.attribute_text)

    @property
    def message_type(self) -> str | None:
        """The type that filters match; None without one."""
        return self.attributes.get(MESSAGE_TYPE)

    @property
    def message_time(self) -> str | None:
        """The creation time set by the producer: twelve digits, `yyyyMMddHHmm`; None without
        one.
        """
        return self.attributes.get(MESSAGE_TIME)


class TubeBatch(NamedTuple):
    """Messages of one partition that arrived together and are confirmed together.

    Attributes:
        messages: in the order of the partition; at least one.
        topic: of all of them.
        partition_key: "broker:topic:partition".
        confirm_context: the argument of `confirm`, which accepts the batch itself, too.
        offset: their start, a position in the partition's index; UNDEFINED if unknown.
        lag: bytes between them and the end of the partition; UNDEFINED if unknown.
    """

    messages: list[TubeMessage]
    topic: str
    partition_key: str
    confirm_context: str
    offset: int
    lag: int


class ConsumedOffset(NamedTuple):
    """The offset of a consumer in a partition (ConsumeOffsetInfo).

    Attributes:
        offset: where it continues, a position in the partition's index; UNDEFINED until known.
        most: the end of the partition at that time; UNDEFINED if unknown.
    """

    offset: int
    most: int
