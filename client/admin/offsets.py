"""Administrative calls for offsets of queues and groups."""

from __future__ import annotations  # bodies and headers are loaded only when a call needs them

from mq.client.admin.base import AdminBase, read
from mq.protocol import bodies, headers
from mq.protocol.codes import RequestCode, ResponseCode

_OR_NOT_FOUND = frozenset((int(ResponseCode.SUCCESS), int(ResponseCode.QUERY_NOT_FOUND)))


class OffsetAdmin(AdminBase):
    """Offsets. Queue offsets count messages from 0; times are in ms since 1970."""

    async def max_offset(self, address: str, topic: str, queue_id: int) -> int:
        """Return the offset that the next message will get."""
        header = headers.GetMaxOffsetRequestHeader(topic=topic, queue_id=queue_id)
        response = await self._ask(address, header)
        return read(headers.GetMaxOffsetResponseHeader.decode, response.fields, address).offset

    async def min_offset(self, address: str, topic: str, queue_id: int) -> int:
        """Return the offset of the oldest retained message."""
        header = headers.GetMinOffsetRequestHeader(topic=topic, queue_id=queue_id)
        response = await self._ask(address, header)
        return read(headers.GetMinOffsetResponseHeader.decode, response.fields, address).offset

    async def search_offset(self, address: str, topic: str, queue_id: int, timestamp: int) -> int:
        """Return the offset of the first message stored at `timestamp` or later, or the end.

        Java brokers before 5.0 return the nearest message instead; `first_at` corrects that
        (client/operations/offsets/by_time.py).
        """
        header = headers.SearchOffsetRequestHeader(
            topic=topic, queue_id=queue_id, timestamp=timestamp, boundary_type="LOWER"
        )
        response = await self._ask(address, header)
        return read(headers.SearchOffsetResponseHeader.decode, response.fields, address).offset

    async def earliest_store_time(self, address: str, topic: str, queue_id: int) -> int:
        """Return the store time of the oldest retained message; -1 if there is none."""
        header = headers.GetEarliestMsgStoretimeRequestHeader(topic=topic, queue_id=queue_id)
        response = await self._ask(address, header)
        answer = read(
            headers.GetEarliestMsgStoretimeResponseHeader.decode, response.fields, address
        )
        return answer.timestamp

    async def query_consumer_offset(
        self,
        address: str,
        group: str,
        topic: str,
        queue_id: int,
        *,
        young_is_zero: bool = True,
    ) -> int | None:
        """Return the committed offset of `group`; None if there is none at this broker.

        Without an offset, a broker returns 0 for a queue whose first messages are still in memory.
        `young_is_zero=False` disables this at brokers that support it (Java's since 5.0).
        """
        header = headers.QueryConsumerOffsetRequestHeader(
            consumer_group=group,
            topic=topic,
            queue_id=queue_id,
            set_zero_if_not_found=None if young_is_zero else False,
        )
        response = await self._ask(address, header, accept=_OR_NOT_FOUND)
        if response.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return read(
            headers.QueryConsumerOffsetResponseHeader.decode, response.fields, address
        ).offset

    async def update_consumer_offset(
        self, address: str, group: str, topic: str, queue_id: int, offset: int
    ) -> None:
        """Set the committed offset of `group`."""
        header = headers.UpdateConsumerOffsetRequestHeader(
            consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=offset
        )
        await self._ask(address, header)

    async def all_consumer_offsets(self, address: str) -> dict[str, dict[int, int]]:
        """Return the committed offsets of every group at the broker at `address`: by `topic@group`,
        then queue.
        """
        response = await self._ask(address, RequestCode.GET_ALL_CONSUMER_OFFSET)
        return read(
            bodies.ConsumerOffsetSerializeWrapper.decode, response.body, address
        ).offset_table

    async def clone_group_offset(
        self, address: str, source: str, target: str, topic: str | None = None
    ) -> None:
        """Copy the offsets of group `source` to group `target` at the broker at `address`."""
        header = headers.CloneGroupOffsetRequestHeader(
            src_group=source, dest_group=target, topic=topic, offline=False
        )
        await self._ask(address, header)
