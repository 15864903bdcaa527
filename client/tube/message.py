"""What a consumer of TubeMQ is given."""

from typing import NamedTuple

from mq.protocol.tube.payload import MESSAGE_TIME, MESSAGE_TYPE, parse_attributes


class TubeMessage(NamedTuple):
    """A message, as its broker has it.

    Attributes:
        topic: where it was sent to.
        body: its bytes.
        message_id: the number that its broker gave it.
        flag: as the producer has set it; its lowest bit says that there are attributes.
        attribute_text: its attributes as they came, `k=v,k=v`; "" without any.
    """

    topic: str
    body: bytes
    message_id: int
    flag: int
    attribute_text: str

    @property
    def attributes(self) -> dict[str, str]:
        """Its attributes; of a name that is there twice the first holds."""
        return parse_attributes(self.attribute_text)

    @property
    def message_type(self) -> str | None:
        """What filters look for; None without one."""
        return self.attributes.get(MESSAGE_TYPE)

    @property
    def message_time(self) -> str | None:
        """When it was made, as its producer says: twelve digits, `yyyyMMddHHmm`; None without."""
        return self.attributes.get(MESSAGE_TIME)


class TubeBatch(NamedTuple):
    """Messages of one partition, which came together and are confirmed together.

    Attributes:
        messages: in the order of the partition; at least one.
        topic: of all of them.
        partition_key: "broker:topic:partition".
        confirm_context: what `confirm` takes; the batch itself will do, too.
        offset: where they begin: a position in the partition's index; UNDEFINED where it is not
            said.
        lag: bytes between them and the end of the partition; UNDEFINED where it is not said.
    """

    messages: list[TubeMessage]
    topic: str
    partition_key: str
    confirm_context: str
    offset: int
    lag: int


class ConsumedOffset(NamedTuple):
    """How far a consumer has come in a partition (ConsumeOffsetInfo).

    Attributes:
        offset: where it goes on, a position in the partition's index; UNDEFINED before it is known.
        most: the end of the partition when that was said; UNDEFINED where it was not.
    """

    offset: int
    most: int
