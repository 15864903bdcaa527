"""Administrative calls of release 5: replication, controllers, broker containers, cold data."""

from __future__ import annotations  # bodies and headers are loaded only when a call needs them

from collections.abc import Iterable, Mapping

from mq.client.admin.base import AdminBase, format_config, parse_config, read
from mq.client.errors import BadAnswer
from mq.protocol import bodies, headers
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command

_CONTAINER_SECONDS = 10.0  # starting a broker takes time; the 3 s of MQClientAPIImpl are too short
_READ_AHEAD_FIELD = "READ_AHEAD_MODE"  # FIleReadaheadMode.READ_AHEAD_MODE


class ReplicationAdmin(AdminBase):
    """Replication between brokers."""

    async def ha_status(self, address: str) -> bodies.HARuntimeInfo:
        """Return the replication status of the broker at `address`, as a master or a slave sees
        it.
        """
        response = await self._ask(address, RequestCode.GET_BROKER_HA_STATUS)
        return read(bodies.HARuntimeInfo.decode, response.body, address)

    async def epochs(self, address: str) -> bodies.EpochEntryCache:
        """Return which part of the log was written by which master; for brokers with a
        controller.
        """
        response = await self._ask(address, RequestCode.GET_BROKER_EPOCH_CACHE)
        return read(bodies.EpochEntryCache.decode, response.body, address)

    async def reset_master_flush_offset(self, address: str, offset: int) -> None:
        """Set the offset up to which the slave at `address` assumes that its master has flushed."""
        header = headers.ResetMasterFlushOffsetHeader(master_flush_offset=offset)
        await self._ask(address, header)


class ColdDataAdmin(AdminBase):
    """Limits on reads of cold data, which is no longer in the page cache."""

    async def cold_data_info(self, address: str) -> bytes:
        """Return the limits and the readers of cold data at the broker at `address`, as JSON; empty
        if none.
        """
        response = await self._ask(address, RequestCode.GET_COLD_DATA_FLOW_CTR_INFO)
        return bytes(response.body)

    async def update_cold_data_limits(self, address: str, limits: Mapping[str, int]) -> None:
        """Set the bytes of cold data per second that groups may read."""
        body = format_config({group: str(limit) for group, limit in limits.items()})
        await self._ask(address, RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, body)

    async def remove_cold_data_limit(self, address: str, group: str) -> None:
        """Restore the default limit for `group`."""
        await self._ask(address, RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, group.encode())

    async def set_read_ahead(self, address: str, mode: int) -> str:
        """Enable (0) or disable (1) the system's read-ahead in the commit log; returns the broker's
        remark.
        """
        request = Command(RequestCode.SET_COMMITLOG_READ_MODE, {_READ_AHEAD_FIELD: str(mode)})
        response = await self.session.call(address, request, self.timeout)
        return response.remark or ""


class ControllerAdmin(AdminBase):
    """Controllers, which elect masters. `address` is any controller of a cluster unless noted
    otherwise.
    """

    async def controller_metadata(self, address: str) -> headers.GetMetaDataResponseHeader:
        """Return the leader of the controllers, as the one at `address` sees it."""
        response = await self._ask(address, RequestCode.CONTROLLER_GET_METADATA_INFO)
        return read(headers.GetMetaDataResponseHeader.decode, response.fields, address)

    async def _leader(self, address: str) -> str:
        leader = (await self.controller_metadata(address)).controller_leader_address
        if not leader:
            raise BadAnswer(address, "it names no leader of the controllers")
        return leader

    async def sync_state(self, address: str, names: Iterable[str]) -> bodies.BrokerReplicasInfo:
        """Return the master and the slaves of the replica sets with these names."""
        import orjson

        leader = await self._leader(address)
        code = RequestCode.CONTROLLER_GET_SYNC_STATE_DATA
        response = await self._ask(leader, code, orjson.dumps(list(names)))
        return read(bodies.BrokerReplicasInfo.decode, response.body, leader)

    async def elect_master(
        self, address: str, cluster: str, name: str, broker_id: int
    ) -> tuple[headers.ElectMasterResponseHeader, bodies.ElectMasterResponseBody]:
        """Make broker `broker_id` the master of its replica set, and return the members of the set
        then.
        """
        header = headers.ElectMasterRequestHeader(
            cluster_name=cluster, broker_name=name, broker_id=broker_id, designate_elect=True
        )
        leader = await self._leader(address)
        response = await self._ask(leader, header)
        elected = read(headers.ElectMasterResponseHeader.decode, response.fields, leader)
        body = response.body or b"{}"
        return elected, read(bodies.ElectMasterResponseBody.decode, body, leader)

    async def clean_broker_metadata(
        self, address: str, name: str, *, cluster: str | None, ids: str | None, living: bool
    ) -> None:
        """Let the controllers forget brokers of a replica set.

        `ids` ("1;2") selects brokers, None all of them; `living` includes running ones.
        """
        header = headers.CleanControllerBrokerDataRequestHeader(
            cluster_name=cluster,
            broker_name=name,
            broker_controller_ids_to_clean=ids,
            is_clean_living_broker=living,
        )
        await self._ask(await self._leader(address), header)

    async def controller_config(self, address: str) -> dict[str, str]:
        """Return the settings of the controller at `address`."""
        response = await self._ask(address, RequestCode.GET_CONTROLLER_CONFIG)
        return parse_config(response.body)

    async def update_controller_config(self, address: str, changes: Mapping[str, str]) -> str:
        """Change settings of the controller at `address`; returns its remark about them, or "".

        Raises ValueError for a line break, and SettingRefused.
        """
        return await self._update_config(address, RequestCode.UPDATE_CONTROLLER_CONFIG, changes)


class ContainerAdmin(AdminBase):
    """Broker containers: several brokers in one process."""

    async def add_broker(self, address: str, config_path: str) -> None:
        """Start a broker in the container at `address`; the path is on its machine."""
        header = headers.AddBrokerRequestHeader(config_path=config_path)
        await self._ask(address, header, timeout=self._patient())

    async def remove_broker(self, address: str, cluster: str, name: str, broker_id: int) -> None:
        """Stop a broker in the container at `address`."""
        header = headers.RemoveBrokerRequestHeader(
            broker_cluster_name=cluster, broker_name=name, broker_id=broker_id
        )
        await self._ask(address, header, timeout=self._patient())

    def _patient(self) -> float:
        return max(self.timeout or 0.0, self.session.timeout, _CONTAINER_SECONDS)
