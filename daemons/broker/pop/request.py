"""Pop request: the parsed and checked request of a group."""

from dataclasses import dataclass

from mq.daemons.broker.filters.properties import Expression

INIT_MIN = 0  # ConsumeInitMode: a new group starts with the first message, or with the last
ALL_QUEUES = -1


@dataclass(frozen=True, slots=True)
class PopRequest:
    """A request to pop messages for a group; times in ms."""

    group: str
    topic: str
    queue_id: int  # or ALL_QUEUES
    maximum: int  # messages
    invisible_time: int
    init_mode: int
    expression: Expression
    is_ordered: bool = False
    attempt_id: str = ""
