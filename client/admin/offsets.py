"""Administrative calls about offsets: those of queues and those of groups."""

from __future__ import annotations  # bodies and headers are loaded when a call needs them

from mq.client.admin.base import AdminBase, read
from mq.protocol import bodies, headers
from mq.protocol.codes import RequestCode, ResponseCode

_OR_NOT_FOUND = frozenset((int(ResponseCode.SUCCESS), int(ResponseCode.QUERY_NOT_FOUND)))


class OffsetAdmin(AdminBase):
    """Offsets. A queue's offsets count messages from 0; times are ms since 1970."""

    async def max_offset(self, address: str, topic: str, queue_id: int) -> int:
        """The offset that the next message will get."""
        header = headers.GetMaxOffsetRequestHeader(topic=topic, queue_id=queue_id)
        response = await self._ask(address, header)
        return read(headers.GetMaxOffsetResponseHeader.decode, response.fields, address).offset

    async def min_offset(self, address: str, topic: str, queue_id: int) -> int:
        """The offset of the oldest message that is kept."""
        header = headers.GetMinOffsetRequestHeader(topic=topic, queue_id=queue_id)
        response = await self._ask(address, header)
        return read(headers.GetMinOffsetResponseHeader.decode, response.fields, address).offset

    async def search_offset(self, address: str, topic: str, queue_id: int, timestamp: int) -> int:
        """The offset of the first message stored at `timestamp` or later, else the end.

        Java brokers before 5.0 answer the nearest message instead; `first_at` corrects that
        (client/operations/offsets/by_time.py).
        """
        header = headers.SearchOffsetRequestHeader(
            topic=topic, queue_id=queue_id, timestamp=timestamp, boundary_type="LOWER"
        )
        response = await self._ask(address, header)
        return read(headers.SearchOffsetResponseHeader.decode, response.fields, address).offset

    async def earliest_store_time(self, address: str, topic: str, queue_id: int) -> int:
        """When the oldest message that is kept was stored; -1 if there is none."""
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
        """The offset that `group` goes on from; None if it has none at this broker.

        Where it has none a broker says 0 of a queue whose first messages are in memory still;
        without `young_is_zero` not, where it knows of that (Java's from 5.0 on).
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
        """Set the offset that `group` goes on from."""
        header = headers.UpdateConsumerOffsetRequestHeader(
            consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=offset
        )
        await self._ask(address, header)

    async def all_consumer_offsets(self, address: str) -> dict[str, dict[int, int]]:
        """What every group at the broker at `address` goes on from: `topic@group`, then queue."""
        response = await self._ask(address, RequestCode.GET_ALL_CONSUMER_OFFSET)
        return read(
            bodies.ConsumerOffsetSerializeWrapper.decode, response.body, address
        ).offset_table

    async def clone_group_offset(
        self, address: str, source: str, target: str, topic: str | None = None
    ) -> None:
        """Give group `target` the offsets of group `source` at the broker at `address`."""
        header = headers.CloneGroupOffsetRequestHeader(
            src_group=source, dest_group=target, topic=topic, offline=False
        )
        await self._ask(address, header)
