"""Parts that several bodies share."""

from mq.protocol.bodies.schema import Body, field
from mq.protocol.codes import SINCE_5


class DataVersion(Body):
    """The version of a table: the time of its last change in ms, and the number of changes."""

    timestamp: int = 0
    counter: int = 0
    state_version: int | None = field(default=None, release=SINCE_5)
