"""Queries of a broker to the leader of its controllers, about one replica set.

All calls raise ControllerRefused, MQError without a reply, and ProtocolError for an invalid reply;
`alter` raises as `Controllers.alter`.
"""

from mq.client.errors import BadAnswer, MQError, RequestTimeout
from mq.client.machine import clock
from mq.daemons.broker.failover.membership.controllers import ControllerGroup
from mq.daemons.broker.failover.membership.identity import Application
from mq.daemons.broker.failover.membership.replica_set import ReplicaSet
from mq.daemons.broker.replication.controlled import ControlledRole, ControllerRefused
from mq.protocol.bodies import SyncStateSet
from mq.protocol.codes import ResponseCode
from mq.protocol.errors import ProtocolError
from mq.protocol.headers.controller import (
    AlterSyncStateSetRequestHeader,
    ApplyBrokerIdRequestHeader,
    ElectMasterRequestHeader,
    GetNextBrokerIdRequestHeader,
    GetNextBrokerIdResponseHeader,
    GetReplicaInfoRequestHeader,
    RegisterBrokerToControllerRequestHeader,
)

_ELECTED = frozenset((int(ResponseCode.SUCCESS), int(ResponseCode.CONTROLLER_MASTER_STILL_EXIST)))
_NOT_ELECTABLE = frozenset(
    (
        ResponseCode.CONTROLLER_ELECT_MASTER_FAILED,
        ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE,
    )
)


class ReplicaSetQueries:
    """Queries about the replica set of a broker that is at an address."""

    def __init__(self, group: ControllerGroup, cluster: str, name: str, address: str) -> None:
        self._group = group
        self._cluster = cluster
        self._name = name
        self._address = address

    async def new_application(self) -> Application:
        """Return a free id to apply for."""
        header = GetNextBrokerIdRequestHeader(cluster_name=self._cluster, broker_name=self._name)
        answer = await self._group.ask(header)
        free = GetNextBrokerIdResponseHeader.decode(answer.fields).next_broker_id
        if free is None or free < 1:
            raise BadAnswer(self._group.leader, f"it offers {free} as an id of {self._name}")
        return Application(free, f"{self._address};{clock.milliseconds()}")

    async def apply(self, application: Application) -> None:
        """Apply for an id. A repeated application with the same check code gets the same id."""
        await self._group.ask(
            ApplyBrokerIdRequestHeader(
                cluster_name=self._cluster,
                broker_name=self._name,
                applied_broker_id=application.broker_id,
                register_check_code=application.check_code,
            )
        )

    async def register(self, broker_id: int) -> ReplicaSet:
        """Register the address; the reply names a master only if it is alive."""
        header = RegisterBrokerToControllerRequestHeader(
            cluster_name=self._cluster,
            broker_name=self._name,
            broker_id=broker_id,
            broker_address=self._address,
            invoke_time=clock.milliseconds(),
        )
        return ReplicaSet.registered(await self._group.ask(header))

    async def look_up(self) -> ReplicaSet:
        """Return the current state of the set."""
        header = GetReplicaInfoRequestHeader(broker_name=self._name)
        return ReplicaSet.looked_up(await self._group.ask(header))

    async def elect(self, broker_id: int) -> ReplicaSet | None:
        """Ask to be elected; returns the set with its master, whichever it is, or None if no member
        can be elected.
        """
        header = ElectMasterRequestHeader(
            cluster_name=self._cluster,
            broker_name=self._name,
            broker_id=broker_id,
            invoke_time=clock.milliseconds(),
        )
        try:
            return ReplicaSet.elected(await self._group.ask(header, accept=_ELECTED))
        except ControllerRefused as error:
            if error.code not in _NOT_ELECTABLE:
                raise
            return None

    async def alter(
        self, role: ControlledRole, members: frozenset[int], epoch: int
    ) -> tuple[frozenset[int], int]:
        """Request another sync state set, as the master of a role."""
        header = AlterSyncStateSetRequestHeader(
            broker_name=self._name,
            master_broker_id=role.broker_id,
            master_epoch=role.master_epoch,
            invoke_time=clock.milliseconds(),
        )
        body = SyncStateSet(sync_state_set=set(members), sync_state_set_epoch=epoch)
        try:
            answer = await self._group.ask(header, body.encode())
            accepted = SyncStateSet.decode(answer.body)
        except RequestTimeout as error:
            raise TimeoutError(str(error)) from None
        except (MQError, ProtocolError) as error:
            raise ConnectionError(str(error)) from None
        return frozenset(accepted.sync_state_set), accepted.sync_state_set_epoch
