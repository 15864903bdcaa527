"""A member of a replica set, as seen by a Java controller: hand-made requests on behalf of our
broker.

This shares no code with the membership that it replaces.
"""

import asyncio
import json
from types import TracebackType
from typing import Self

from mq.client.errors import ConnectError
from mq.client.transport.session import Session
from mq.daemons.broker.replication.controlled import ControlledRole, ControllerRefused, OnMembers
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command

BEAT_SECONDS = 0.5
_CHECK_CODE = "a test"


class Member:
    """The broker at an address, in a named set; alive between entering and leaving."""

    def __init__(self, controller: str, name: str, address: str) -> None:
        self.id = 0
        self.address = address
        self.says: dict[str, int] = {"epoch": -1, "maxOffset": 0, "confirmOffset": 0}
        self._controller = controller
        self._name = name
        self._session = Session("127.0.0.1:1", timeout=10)
        self._beating: asyncio.Task[None] | None = None
        self._master_epoch = 0

    async def __aenter__(self) -> Self:
        await self._session.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.die()
        await self._session.close()

    def die(self) -> None:
        """Stop the heartbeats to the controller; `live` starts them again."""
        if self._beating is not None:
            self._beating.cancel()
            self._beating = None

    async def ask(self, code: RequestCode, body: bytes = b"", /, **fields: object) -> Command:
        names = {"clusterName": "DefaultCluster", "brokerName": self._name, "invokeTime": 0}
        given = {name: str(value) for name, value in {**names, **fields}.items()}
        while True:
            reply = await self._session.invoke(self._controller, Command(code, given, body))
            if reply.code != ResponseCode.CONTROLLER_NOT_LEADER:
                return reply
            await asyncio.sleep(0.1)  # a new controller elects itself first

    async def join(self) -> None:
        """Get an id, register it, and start the heartbeats."""
        reply = await self.ask(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID)
        self.id = int(reply.fields["nextBrokerId"])
        code = f"{self.address};{_CHECK_CODE}"
        reply = await self.ask(
            RequestCode.CONTROLLER_APPLY_BROKER_ID, appliedBrokerId=self.id, registerCheckCode=code
        )
        assert reply.code == ResponseCode.SUCCESS, reply
        await self.live()

    async def live(self) -> None:
        """Register with the id, and send heartbeats."""
        reply = await self.ask(
            RequestCode.CONTROLLER_REGISTER_BROKER, brokerId=self.id, brokerAddress=self.address
        )
        assert reply.code == ResponseCode.SUCCESS, reply
        self._beating = asyncio.create_task(self._beat())

    async def elect(self) -> None:
        """Request an election; this member becomes master if there never was another."""
        reply = await self.ask(
            RequestCode.CONTROLLER_ELECT_MASTER, brokerId=self.id, designateElect="false"
        )
        assert reply.code == ResponseCode.SUCCESS, reply

    async def _beat(self) -> None:
        while True:
            fields: dict[str, object] = {"brokerAddr": self.address, "brokerId": self.id}
            fields |= {"heartbeatTimeoutMills": 3000, **self.says}
            await self.ask(RequestCode.BROKER_HEARTBEAT, b"", **fields)
            await asyncio.sleep(BEAT_SECONDS)

    async def role(self, ha_address: str = "") -> ControlledRole | None:
        """Return the role that the controller assigns to this broker; None without a master or an
        answer.
        """
        try:
            reply = await self.ask(RequestCode.CONTROLLER_GET_REPLICA_INFO)
        except ConnectError:
            # It closes the connection of an evicted broker, whatever that has just requested
            # (DefaultBrokerHeartbeatManager.scanNotActiveBroker).
            return None
        if reply.code != ResponseCode.SUCCESS or "masterBrokerId" not in reply.fields:
            return None
        master, body = int(reply.fields["masterBrokerId"]), json.loads(bytes(reply.body))
        self._master_epoch = int(reply.fields["masterEpoch"])
        return ControlledRole(
            broker_id=self.id,
            is_master=master == self.id,
            master_id=master,
            master_epoch=self._master_epoch,
            master_address=reply.fields["masterAddress"],
            master_ha_address=ha_address,
            members=frozenset(body["syncStateSet"]),
            members_epoch=body["syncStateSetEpoch"],
        )

    # as Controllers -----------------------------------------------------------------------------

    async def alter(self, members: frozenset[int], epoch: int) -> tuple[frozenset[int], int]:
        body = {"syncStateSet": sorted(members), "syncStateSetEpoch": epoch}
        reply = await self.ask(
            RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
            json.dumps(body).encode(),
            masterBrokerId=self.id,
            masterEpoch=self._master_epoch,
        )
        if reply.code != ResponseCode.SUCCESS:
            raise ControllerRefused(reply.code, reply.remark or "")
        found = json.loads(bytes(reply.body))
        return frozenset(found["syncStateSet"]), found["syncStateSetEpoch"]

    def may_answer(self) -> bool:
        return True

    def on_members(self, callback: OnMembers) -> None:
        """This member sends no notifications."""
