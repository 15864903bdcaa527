"""Suggests the broker for the next pull: the master, or a slave for messages far from the log's
end.
"""

from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.pull.message_finder import RETRY, FoundMessages
from mq.daemons.broker.store import CommitLog, ConsumeQueue
from mq.protocol.bodies import SubscriptionGroupConfig
from mq.protocol.names import MASTER_ID


class Suggestions:
    """Suggests a broker with each reply if slaves may be read from (slaveReadEnable)."""

    def __init__(self, settings: BrokerSettings, commit_log: CommitLog, warm_bytes: int) -> None:
        """Messages more than ``warm_bytes`` before the end of the log count as far from it."""
        self._settings = settings
        self._log = commit_log
        self._warm_bytes = warm_bytes
        self.configure()

    def configure(self) -> None:
        """Read the settings again."""
        self.to_slaves = self._settings.broker.slave_read_enable

    def is_for_master(
        self, group: SubscriptionGroupConfig, queue: ConsumeQueue, offset: int
    ) -> bool:
        """Whether a reply that starts at a queue offset can only name the master, like all replies
        of the native path.
        """
        if not self.to_slaves:
            return True
        entry = queue.entry(offset)
        return group.broker_id == MASTER_ID and (entry is None or self._is_near(entry[0]))

    def _is_near(self, physical: int) -> bool:
        """Whether a physical offset is near the end of the log."""
        return self._log.written - physical <= self._warm_bytes

    def of(self, group: SubscriptionGroupConfig, queue: ConsumeQueue, found: FoundMessages) -> int:
        """The id of the broker from which a group is to read next, after this reply.

        Source: PullMessageProcessor; DefaultMessageStore.getMessage for messages far from the log's
        end.
        """
        if not self.to_slaves:
            return MASTER_ID
        end = found.end
        if not end and found.code == RETRY:  # messages were read, and none matched the filter
            entry = queue.entry(found.next_offset - 1)
            end = 0 if entry is None else entry[0] + entry[1]
        if end and not self._is_near(end):
            return group.which_broker_when_consume_slowly
        return group.broker_id
