"""Administrative calls about brokers and clusters."""

from __future__ import annotations  # bodies and headers are loaded when a call needs them

from collections.abc import Iterable, Mapping

from mq.client.admin.base import AdminBase, parse_config, read
from mq.protocol import bodies, headers
from mq.protocol.codes import RequestCode


class BrokerAdmin(AdminBase):
    """Brokers: where they are, how they do, how they are set."""

    async def cluster_info(self) -> bodies.ClusterInfo:
        """Every cluster's brokers and their addresses."""
        response, address = await self._ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
        return read(bodies.ClusterInfo.decode, response.body, address)

    async def broker_runtime_info(self, address: str) -> dict[str, str]:
        """The figures of the broker at `address`, by name."""
        response = await self._ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        return read(bodies.KVTable.decode, response.body, address).table

    async def broker_config(self, address: str) -> dict[str, str]:
        """The settings of the broker at `address`."""
        response = await self._ask(address, RequestCode.GET_BROKER_CONFIG)
        return parse_config(response.body)

    async def update_broker_config(self, address: str, changes: Mapping[str, str]) -> str:
        """Change settings of the broker at `address`; returns its notes about them, or "".

        Raises ValueError for a line break, and SettingRefused.
        """
        return await self._update_config(address, RequestCode.UPDATE_BROKER_CONFIG, changes)

    async def broker_stats(self, address: str, name: str, key: str) -> bodies.BrokerStatsData:
        """A statistic of the last minute, hour and day, such as TOPIC_PUT_NUMS of a topic.

        Raises NoneThere when the broker has no such statistic.
        """
        header = headers.ViewBrokerStatsDataRequestHeader(stats_name=name, stats_key=key)
        response = await self._ask(address, header)
        return read(bodies.BrokerStatsData.decode, response.body, address)

    async def producers(self, address: str) -> bodies.ProducerTableInfo:
        """Every producer connected to the broker at `address`, by group."""
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
        """Entries of a consume queue from `index` on, judged by the subscription of `group`.

        Empty, with bounds 0, for a queue without any: Java's broker answers with no body then.
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
        """How far every group has come at the broker at `address`; of ordered topics if asked.

        The broker goes through all topics of all groups, which may take it a while.
        """
        header = headers.GetConsumeStatsInBrokerHeader(is_order=ordered)
        response = await self._ask(address, header, timeout=timeout)
        return read(bodies.ConsumeStatsList.decode, response.body, address)

    async def check_rocksdb_progress(
        self, address: str, topic: str, since: int
    ) -> bodies.CheckRocksdbCqWriteResult:
        """Let the broker at `address` (5.x) compare queues in files with those in RocksDB.

        Of all topics if `topic` is empty; of messages stored since a time in ms.
        """
        header = headers.CheckRocksdbCqWriteProgressRequestHeader(
            topic=topic, check_store_time=since
        )
        response = await self._ask(address, header)
        return read(bodies.CheckRocksdbCqWriteResult.decode, response.body, address)

    async def export_rocksdb_config(
        self, address: str, kinds: Iterable[str], *, timeout: float | None = None
    ) -> None:
        """Let the broker at `address` write settings that it keeps in RocksDB to JSON files.

        `kinds` are of topics, subscriptionGroups, consumerOffsets. Needs release 5.3.2.
        """
        config_type = "".join(f"{kind};" for kind in kinds)
        header = headers.ExportRocksDBConfigToJsonRequestHeader(config_type=config_type)
        await self._ask(address, header, timeout=timeout)

    async def clean_expired_consume_queues(self, address: str) -> None:
        """Let the broker at `address` delete queue files whose messages are gone."""
        await self._ask(address, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)

    async def clean_unused_topics(self, address: str) -> None:
        """Let the broker at `address` delete queue files of topics that it has no settings of."""
        await self._ask(address, RequestCode.CLEAN_UNUSED_TOPIC)

    async def delete_expired_commit_log(self, address: str) -> None:
        """Let the broker at `address` delete log files that are past their time, now."""
        await self._ask(address, RequestCode.DELETE_EXPIRED_COMMITLOG)
