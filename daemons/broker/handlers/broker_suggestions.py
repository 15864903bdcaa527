"""Which broker of a set the next pull is to go to: the master, or a slave for what is far back."""

from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.reading.message_finder import RETRY, FoundMessages
from mq.daemons.broker.store.commit_log import CommitLog
from mq.daemons.broker.store.consume_queue import ConsumeQueue
from mq.protocol.bodies import SubscriptionGroupConfig
from mq.protocol.names import MASTER_ID


class Suggestions:
    """Suggests a broker with each answer, if slaves are read from (slaveReadEnable)."""

    def __init__(self, settings: BrokerSettings, commit_log: CommitLog, warm_bytes: int) -> None:
        """What lies further than ``warm_bytes`` behind the end of the log is far back."""
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
        """Whether an answer that begins at a queue offset can only name the master, as those of the
        native path do."""
        if not self.to_slaves:
            return True
        entry = queue.entry(offset)
        return group.broker_id == MASTER_ID and (entry is None or self._is_near(entry[0]))

    def _is_near(self, physical: int) -> bool:
        """Whether a physical offset is near the end of the log."""
        return self._log.written - physical <= self._warm_bytes

    def of(self, group: SubscriptionGroupConfig, queue: ConsumeQueue, found: FoundMessages) -> int:
        """The id of the broker that a group is to read from next, after this answer.

        Source: PullMessageProcessor, and DefaultMessageStore.getMessage for what is far back.
        """
        if not self.to_slaves:
            return MASTER_ID
        end = found.end
        if not end and found.code == RETRY:  # it was read, and nothing of it fitted
            entry = queue.entry(found.next_offset - 1)
            end = 0 if entry is None else entry[0] + entry[1]
        if end and not self._is_near(end):
            return group.which_broker_when_consume_slowly
        return group.broker_id
