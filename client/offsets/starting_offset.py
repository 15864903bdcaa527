"""Starting offsets: where a group starts in a queue without a committed offset."""

from mq.client.admin.offsets import OffsetAdmin
from mq.client.transport.session import Session
from mq.protocol.bodies import ConsumeFromWhere, MessageQueue
from mq.protocol.names import RETRY_PREFIX


class StartingOffset:
    """Finds the starting offset for `consume_from` (RebalancePushImpl.computePullFromWhere)."""

    def __init__(self, session: Session, consume_from: ConsumeFromWhere, start_time: int) -> None:
        """`start_time`, in ms since 1970, applies to CONSUME_FROM_TIMESTAMP."""
        self._session = session
        self._admin = OffsetAdmin(session)
        self._where = consume_from
        self._start_time = start_time

    async def find(self, queue: MessageQueue) -> int:
        """Return the starting offset in `queue`. Raises the errors of the query to its broker."""
        retried = queue.topic.startswith(RETRY_PREFIX)
        where = self._where
        if where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
            return 0
        if retried and where is ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET:
            return 0  # messages sent back before this member joined must be consumed, too
        address = await self._session.master_address(queue.topic, queue.broker_name)
        if where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP and not retried:
            return await self._admin.search_offset(
                address, queue.topic, queue.queue_id, self._start_time
            )
        return await self._admin.max_offset(address, queue.topic, queue.queue_id)
