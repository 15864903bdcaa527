"""Administrative calls for brokers and clusters."""

from __future__ import annotations  # bodies and headers are loaded only when a call needs them

from collections.abc import Iterable, Mapping

from mq.client.admin.base import AdminBase, parse_config, read
from mq.protocol import bodies, headers
from mq.protocol.codes import RequestCode


class BrokerAdmin(AdminBase):
    """Brokers: their addresses, state and settings."""

    async def cluster_info(self) -> bodies.ClusterInfo:
        """Return the brokers of every cluster, with their addresses."""
        response, address = await self._ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
        return read(bodies.ClusterInfo.decode, response.body, address)

    async def broker_runtime_info(self, address: str) -> dict[str, str]:
        """Return the runtime figures of the broker at `address`, by name."""
        response = await self._ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        return read(bodies.KVTable.decode, response.body, address).table

    async def broker_config(self, address: str) -> dict[str, str]:
        """Return the settings of the broker at `address`."""
        response = await self._ask(address, RequestCode.GET_BROKER_CONFIG)
        return parse_config(response.body)

    async def update_broker_config(self, address: str, changes: Mapping[str, str]) -> str:
        """Change settings of the broker at `address`; returns its remark about them, or "".

        Raises ValueError for a line break, and SettingRefused.
        """
        return await self._update_config(address, RequestCode.UPDATE_BROKER_CONFIG, changes)

    async def broker_stats(self, address: str, name: str, key: str) -> bodies.BrokerStatsData:
        """Return a statistic of the last minute, hour and day, such as TOPIC_PUT_NUMS of a topic.

        Raises NoneThere if the broker does not have the statistic.
        """
        header = headers.ViewBrokerStatsDataRequestHeader(stats_name=name, stats_key=key)
        response = await self._ask(address, header)
        return read(bodies.BrokerStatsData.decode, response.body, address)

    async def producers(self, address: str) -> bodies.ProducerTableInfo:
        """Return every producer connected to the broker at `address`, by group."""
        response = await self._ask(address, RequestCode.GET_ALL_PRODUCER_INFO)
        return read(bodies.ProducerTableInfo.decode, response.body, address)

    async def consume_queue(
        self,
        address: str,
        topic: str,
        queue_id: int,
        index: int,
        count: int,
        group: str | None = None,
    ) -> bodies.QueryConsumeQueueResponseBody:
        """Return entries of a consume queue from `index` on, checked against the subscription of
        `group`.

        The result is empty, with bounds 0, for a queue without entries: Java's broker then answers
        without a body.
        """
        header = headers.QueryConsumeQueueRequestHeader(
            topic=topic, queue_id=queue_id, index=index, count=count, consumer_group=group
        )
        response = await self._ask(address, header)
        if not response.body:
            return bodies.QueryConsumeQueueResponseBody()
        return read(bodies.QueryConsumeQueueResponseBody.decode, response.body, address)

    async def broker_consume_stats(
        self, address: str, *, ordered: bool = False, timeout: float | None = None
    ) -> bodies.ConsumeStatsList:
        """Return the progress of every group at the broker at `address`; with `ordered` of ordered
        topics.

        The broker iterates over all topics of all groups, which may take a while.
        """
        header = headers.GetConsumeStatsInBrokerHeader(is_order=ordered)
        response = await self._ask(address, header, timeout=timeout)
        return read(bodies.ConsumeStatsList.decode, response.body, address)

    async def check_rocksdb_progress(
        self, address: str, topic: str, since: int
    ) -> bodies.CheckRocksdbCqWriteResult:
        """Let the broker at `address` (5.x) compare queues in files with those in RocksDB.

        An empty `topic` means all topics; `since` (ms) is the earliest store time.
        """
        header = headers.CheckRocksdbCqWriteProgressRequestHeader(
            topic=topic, check_store_time=since
        )
        response = await self._ask(address, header)
        return read(bodies.CheckRocksdbCqWriteResult.decode, response.body, address)

    async def export_rocksdb_config(
        self, address: str, kinds: Iterable[str], *, timeout: float | None = None
    ) -> None:
        """Let the broker at `address` export settings that it keeps in RocksDB to JSON files.

        `kinds` are any of topics, subscriptionGroups, consumerOffsets. Requires release 5.3.2.
        """
        config_type = "".join(f"{kind};" for kind in kinds)
        header = headers.ExportRocksDBConfigToJsonRequestHeader(config_type=config_type)
        await self._ask(address, header, timeout=timeout)

    async def clean_expired_consume_queues(self, address: str) -> None:
        """Let the broker at `address` delete queue files whose messages are expired."""
        await self._ask(address, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)

    async def clean_unused_topics(self, address: str) -> None:
        """Let the broker at `address` delete queue files of topics without a configuration."""
        await self._ask(address, RequestCode.CLEAN_UNUSED_TOPIC)

    async def delete_expired_commit_log(self, address: str) -> None:
        """Let the broker at `address` delete expired log files now."""
        await self._ask(address, RequestCode.DELETE_EXPIRED_COMMITLOG)
