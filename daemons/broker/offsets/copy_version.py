"""Versions of the offsets that a broker returns to other brokers of its replica set.

A master that returns copies the offsets of a slave that has acted as the master; the version
identifies these. A master of Java copies offsets whose version is not lower than its own, and does
not start without a version (BrokerPreOnlineService). Whether a slave has acted is stored with the
offsets of groups (`ConsumerOffsets`), because it may be asked after a restart, before it acts
again.
"""

from mq.client.machine import clock

_NOT_ACTED = -1  # lower than that of any table


class CopyVersion:
    """``is_copy`` says whether the offsets are a slave's, ``has_acted`` whether that slave has
    acted as the master since they were copied.
    """

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
    """Whether a returning master may lack offsets with this version, which a reply contains."""
    state = fields.get("stateVersion", 0) if isinstance(fields, dict) else 0
    return not isinstance(state, int) or state > _NOT_ACTED
