"""Brokers as a controller knows them: only their requests to it."""

from types import TracebackType
from typing import Self

from mq.daemons.controller.app import Controller
from mq.daemons.controller.config import ControllerSettings
from mq.protocol.bodies.controller import SyncStateSet
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.headers.controller import (
    AlterSyncStateSetRequestHeader,
    ApplyBrokerIdRequestHeader,
    BrokerHeartbeatRequestHeader,
    ElectMasterRequestHeader,
    GetNextBrokerIdRequestHeader,
    GetNextBrokerIdResponseHeader,
    GetReplicaInfoRequestHeader,
    RegisterBrokerToControllerRequestHeader,
)
from tests.daemons.peer import Peer

NAME, CLUSTER = "broker-a", "c"


def controller(url: str, **settings: str) -> Controller:
    """A controller on a free port."""
    fixed = {"listenPort": "0", "bindAddress": "127.0.0.1", "etcdEndpoints": url}
    fixed |= {"leaderLeaseSeconds": "30", "scanNotActiveBrokerInterval": "50"}
    return Controller(ControllerSettings.load(None, {**fixed, **settings}))


async def form_set(
    master: "ScriptedBroker", *others: "ScriptedBroker", in_sync: set[int] | None = None
) -> Command:
    """Register brokers, the first as the master, and change the in-sync set: to all of them unless
    some are named. Returns the reply to that change.
    """
    await master.join()
    await master.elect()
    for other in others:
        await other.join()
    members = {one.id for one in (master, *others)} if in_sync is None else in_sync
    return await master.alter(members, 1, 1)


class ScriptedBroker:
    """A broker of a set, with one connection to a controller."""

    def __init__(self, port: int, broker_id: int, name: str = NAME) -> None:
        self.id = broker_id
        self.name = name
        self.address = f"127.0.0.1:{20_000 + broker_id}"
        self.peer = Peer(port)

    async def __aenter__(self) -> Self:
        await self.peer.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.peer.close()

    async def next_id(self) -> int:
        header = GetNextBrokerIdRequestHeader(cluster_name=CLUSTER, broker_name=self.name)
        reply = await self.peer.ask(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, header)
        assert reply.code == ResponseCode.SUCCESS, reply
        return GetNextBrokerIdResponseHeader.decode(reply.fields).next_broker_id or 0

    async def apply(self, code: str = "") -> Command:
        header = ApplyBrokerIdRequestHeader(
            cluster_name=CLUSTER,
            broker_name=self.name,
            applied_broker_id=self.id,
            register_check_code=code or f"{self.address};{self.id}",
        )
        return await self.peer.ask(RequestCode.CONTROLLER_APPLY_BROKER_ID, header)

    async def register(self) -> Command:
        header = RegisterBrokerToControllerRequestHeader(
            cluster_name=CLUSTER,
            broker_name=self.name,
            broker_id=self.id,
            broker_address=self.address,
        )
        return await self.peer.ask(RequestCode.CONTROLLER_REGISTER_BROKER, header)

    async def beat(self, epoch: int = 0, offset: int = 0, **more: int) -> Command:
        header = BrokerHeartbeatRequestHeader(
            cluster_name=CLUSTER,
            broker_addr=self.address,
            broker_name=self.name,
            broker_id=self.id,
            epoch=epoch,
            max_offset=offset,
            heartbeat_timeout_mills=more.get("timeout", 10_000),
            election_priority=more.get("priority"),
        )
        return await self.peer.ask(RequestCode.BROKER_HEARTBEAT, header)

    async def elect(self, broker_id: int | None = None, designated: bool = False) -> Command:
        header = ElectMasterRequestHeader(
            cluster_name=CLUSTER,
            broker_name=self.name,
            broker_id=self.id if broker_id is None else broker_id,
            designate_elect=designated,
        )
        return await self.peer.ask(RequestCode.CONTROLLER_ELECT_MASTER, header)

    async def info(self) -> Command:
        header = GetReplicaInfoRequestHeader(broker_name=self.name)
        return await self.peer.ask(RequestCode.CONTROLLER_GET_REPLICA_INFO, header)

    async def alter(self, members: set[int], epoch: int, master_epoch: int) -> Command:
        header = AlterSyncStateSetRequestHeader(
            broker_name=self.name, master_broker_id=self.id, master_epoch=master_epoch
        )
        body = SyncStateSet(sync_state_set=members, sync_state_set_epoch=epoch).encode()
        return await self.peer.ask(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, header, body)

    async def join(self) -> None:
        """Take the id, register the address and send a heartbeat."""
        for reply in (await self.apply(), await self.beat(), await self.register()):
            assert reply.code == ResponseCode.SUCCESS, reply
