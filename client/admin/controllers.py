"""Administrative calls of release 5: replication, controllers, broker containers, cold data."""

from __future__ import annotations  # bodies and headers are loaded when a call needs them

from collections.abc import Iterable, Mapping

from mq.client.admin.base import AdminBase, format_config, parse_config, read
from mq.client.errors import BadAnswer
from mq.protocol import bodies, headers
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command

_CONTAINER_SECONDS = 10.0  # starting a broker takes its time (MQClientAPIImpl: 3 s, too short)
_READ_AHEAD_FIELD = "READ_AHEAD_MODE"  # FIleReadaheadMode.READ_AHEAD_MODE


class ReplicationAdmin(AdminBase):
    """How brokers replicate."""

    async def ha_status(self, address: str) -> bodies.HARuntimeInfo:
        """How replication does at the broker at `address`, seen by a master or by a replica."""
        response = await self._ask(address, RequestCode.GET_BROKER_HA_STATUS)
        return read(bodies.HARuntimeInfo.decode, response.body, address)

    async def epochs(self, address: str) -> bodies.EpochEntryCache:
        """Which part of the log was written under which master; of brokers with a controller."""
        response = await self._ask(address, RequestCode.GET_BROKER_EPOCH_CACHE)
        return read(bodies.EpochEntryCache.decode, response.body, address)

    async def reset_master_flush_offset(self, address: str, offset: int) -> None:
        """Let the replica at `address` believe that its master has flushed up to `offset`."""
        header = headers.ResetMasterFlushOffsetHeader(master_flush_offset=offset)
        await self._ask(address, header)


class ColdDataAdmin(AdminBase):
    """What brokers read that is in the page cache no more."""

    async def cold_data_info(self, address: str) -> bytes:
        """The limits of the broker at `address` and who reads cold data: JSON; empty for none."""
        response = await self._ask(address, RequestCode.GET_COLD_DATA_FLOW_CTR_INFO)
        return bytes(response.body)

    async def update_cold_data_limits(self, address: str, limits: Mapping[str, int]) -> None:
        """Let groups read so many bytes of cold data a second."""
        body = format_config({group: str(limit) for group, limit in limits.items()})
        await self._ask(address, RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, body)

    async def remove_cold_data_limit(self, address: str, group: str) -> None:
        """Let `group` have the limit that groups have by default."""
        await self._ask(address, RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, group.encode())

    async def set_read_ahead(self, address: str, mode: int) -> str:
        """Let the system read ahead in the commit log (0) or not (1); the broker's own words."""
        request = Command(RequestCode.SET_COMMITLOG_READ_MODE, {_READ_AHEAD_FIELD: str(mode)})
        response = await self.session.call(address, request, self.timeout)
        return response.remark or ""


class ControllerAdmin(AdminBase):
    """Controllers, which elect masters; `address` is any of a group, unless it says otherwise."""

    async def controller_metadata(self, address: str) -> headers.GetMetaDataResponseHeader:
        """Who leads the controllers, as the one at `address` sees it."""
        response = await self._ask(address, RequestCode.CONTROLLER_GET_METADATA_INFO)
        return read(headers.GetMetaDataResponseHeader.decode, response.fields, address)

    async def _leader(self, address: str) -> str:
        leader = (await self.controller_metadata(address)).controller_leader_address
        if not leader:
            raise BadAnswer(address, "it names no leader of the controllers")
        return leader

    async def sync_state(self, address: str, names: Iterable[str]) -> bodies.BrokerReplicasInfo:
        """The master and the replicas of sets, by the names of the sets."""
        import orjson

        leader = await self._leader(address)
        code = RequestCode.CONTROLLER_GET_SYNC_STATE_DATA
        response = await self._ask(leader, code, orjson.dumps(list(names)))
        return read(bodies.BrokerReplicasInfo.decode, response.body, leader)

    async def elect_master(
        self, address: str, cluster: str, name: str, broker_id: int
    ) -> tuple[headers.ElectMasterResponseHeader, bodies.ElectMasterResponseBody]:
        """Make broker `broker_id` the master of its set, and tell who is in it then."""
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
        """Let the controllers forget brokers of a set: `ids` ("1;2"), or all; `living` ones too."""
        header = headers.CleanControllerBrokerDataRequestHeader(
            cluster_name=cluster,
            broker_name=name,
            broker_controller_ids_to_clean=ids,
            is_clean_living_broker=living,
        )
        await self._ask(await self._leader(address), header)

    async def controller_config(self, address: str) -> dict[str, str]:
        """The settings of the controller at `address`."""
        response = await self._ask(address, RequestCode.GET_CONTROLLER_CONFIG)
        return parse_config(response.body)

    async def update_controller_config(self, address: str, changes: Mapping[str, str]) -> str:
        """Change settings of the controller at `address`; returns its notes about them, or "".

        Raises ValueError for a line break, and SettingRefused.
        """
        return await self._update_config(address, RequestCode.UPDATE_CONTROLLER_CONFIG, changes)


class ContainerAdmin(AdminBase):
    """Broker containers: several brokers in one process."""

    async def add_broker(self, address: str, config_path: str) -> None:
        """Start a broker in the container at `address`; the path is of its machine."""
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
