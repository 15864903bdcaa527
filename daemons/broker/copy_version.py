"""What the offsets that a broker answers with are worth to another broker of its set.

A master that comes back takes those of a slave that has acted as the master; the version tells it
which they are. A master of Java takes what has no lower version than its own, and does not start
where there is none (BrokerPreOnlineService). That a slave has acted is kept with the offsets of
groups (`ConsumerOffsets`): it may be asked when it has been started again and does not act yet.
"""

from mq.client.machine import clock

_NOT_ACTED = -1  # lower than that of any table


class CopyVersion:
    """``is_copy`` says whether the offsets are a slave's, ``has_acted`` whether that has acted as
    the master since they were copied."""

    def __init__(self) -> None:
        self.is_copy = False
        self.has_acted = False

    def fields(self) -> dict[str, int]:
        """Java's DataVersion."""
        if self.has_acted:  # above any count of changes
            now = clock.milliseconds()
            return {"counter": now, "stateVersion": 0, "timestamp": now}
        state = _NOT_ACTED if self.is_copy else 0
        return {"counter": 0, "stateVersion": state, "timestamp": 0}


def is_worth_taking(fields: object) -> bool:
    """Whether a returning master may be behind offsets with this version, as an answer has it."""
    state = fields.get("stateVersion", 0) if isinstance(fields, dict) else 0
    return not isinstance(state, int) or state > _NOT_ACTED
