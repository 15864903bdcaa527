"""A controller that a test scripts: it answers as one of Java 5.5.0 does, from memory.

It does the work of DLedgerController and ReplicasInfoManager without Raft: it is the leader, alone.
A broker is alive from its first heartbeat until the connection of that heartbeat ends.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Self

from mq.client.errors import MQError
from mq.client.transport.session import Session
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Dispatcher, Handler, Refused, Reply
from mq.daemons.listener import Listener
from mq.daemons.request_codes import handlers_of, serves
from mq.protocol.bodies import ElectMasterResponseBody, SyncStateSet
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.headers import controller as headers
from tests.daemons.peer import PATIENCE
from tests.interop.ports import free_port

R = ResponseCode


@dataclass
class Heard:
    """The content of a broker's last heartbeat."""

    channel: Channel
    epoch: int
    max_offset: int


@dataclass
class Set:
    """The brokers of a name."""

    ids: dict[int, tuple[str, str]] = field(default_factory=dict)  # address, check code
    next_id: int = 1
    master: int = 0
    epoch: int = 0
    members: set[int] = field(default_factory=set)
    members_epoch: int = 0
    alive: dict[int, Heard] = field(default_factory=dict)


class ScriptedController:
    """`async with ScriptedController() as controller`; `close` and `open` are its death and return.

    ``asked`` has the codes of all requests except heartbeats. Requests with a code in ``mute`` are
    carried out without a reply; those in ``refuses`` are refused with the code there.
    """

    def __init__(self) -> None:
        self.port = free_port()  # no connection may take it while this is closed
        self.sets: dict[str, Set] = {}
        self.asked: list[int] = []
        self.mute: set[int] = set()
        self.refuses: dict[int, ResponseCode] = {}
        self.notifies = True
        self.hears_last = False  # by the last connection of a broker, not the first, it lives
        self.changed = asyncio.Event()
        self._session = Session("127.0.0.1:1", timeout=PATIENCE)
        self._listener: Listener | None = None

    async def __aenter__(self) -> Self:
        await self._session.open()
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
        await self._session.close()

    async def open(self) -> None:
        handlers = {code: self._told(handle) for code, handle in handlers_of(self).items()}
        listener = self._listener = Listener(Dispatcher(handlers), "127.0.0.1", self.port)
        await listener.__aenter__()

    async def close(self) -> None:
        """Close its connections, after which no broker is alive; it keeps its stored state."""
        listener, self._listener = self._listener, None
        if listener is not None:
            for one in self.sets.values():
                one.alive.clear()
            await listener.__aexit__(None, None, None)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until a condition on its state holds."""
        async with asyncio.timeout(PATIENCE):
            while not holds():
                self.changed.clear()
                await self.changed.wait()

    def _told(self, handle: Handler) -> Handler:
        def call(command: Command, channel: Channel) -> Reply | Awaitable[Reply]:
            if command.code != RequestCode.BROKER_HEARTBEAT:
                self.asked.append(command.code)
            if command.code in self.refuses:
                raise Refused(self.refuses[command.code], "as the test says")
            answer = handle(command, channel)
            self.changed.set()
            return None if command.code in self.mute else answer

        return call

    # leadership ----------------------------------------------------------------------------------

    @serves(RequestCode.CONTROLLER_GET_METADATA_INFO)
    def metadata(self, command: Command, channel: Channel) -> Command:
        header = headers.GetMetaDataResponseHeader(
            group="g",
            controller_leader_id="n0",
            controller_leader_address=self.address,
            is_leader=True,
            peers=f"n0:{self.address};",
        )
        return command.reply(fields=header.encode())

    # ids ----------------------------------------------------------------------------------------

    @serves(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID)
    def next_id(self, command: Command, channel: Channel) -> Command:
        asked = headers.GetNextBrokerIdRequestHeader.decode(command.fields)
        name = asked.broker_name or ""
        there = self.sets.get(name)
        header = headers.GetNextBrokerIdResponseHeader(
            cluster_name=asked.cluster_name,
            broker_name=name,
            next_broker_id=1 if there is None else there.next_id,
        )
        return command.reply(fields=header.encode())

    @serves(RequestCode.CONTROLLER_APPLY_BROKER_ID)
    def apply(self, command: Command, channel: Channel) -> Command:
        asked = headers.ApplyBrokerIdRequestHeader.decode(command.fields)
        number, check = asked.applied_broker_id or 0, asked.register_check_code or ""
        there = self.sets.get(asked.broker_name or "")
        if there is None:
            if number != 1:
                raise Refused(R.CONTROLLER_BROKER_ID_INVALID, "the first id is 1")
            there = self.sets[asked.broker_name or ""] = Set()
        if number in there.ids and there.ids[number][1] != check:
            raise Refused(R.CONTROLLER_BROKER_ID_INVALID, "another broker has it")
        if number not in there.ids:
            there.ids[number] = check.split(";")[0], check
            there.next_id = max(there.next_id, number + 1)
        header = headers.ApplyBrokerIdResponseHeader(broker_name=asked.broker_name)
        return command.reply(fields=header.encode())

    # the set ------------------------------------------------------------------------------------

    def _known(self, name: str | None, number: int | None) -> Set:
        there = self.sets.get(name or "")
        if there is None or number not in there.ids:
            raise Refused(R.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, "it has not been registered")
        return there

    @serves(RequestCode.CONTROLLER_REGISTER_BROKER)
    def register(self, command: Command, channel: Channel) -> Command:
        asked = headers.RegisterBrokerToControllerRequestHeader.decode(command.fields)
        number = asked.broker_id or 0
        there = self._known(asked.broker_name, number)
        header = headers.RegisterBrokerToControllerResponseHeader(broker_name=asked.broker_name)
        if there.master in there.alive:
            header.master_broker_id = there.master
            header.master_address = there.ids[there.master][0]
            header.master_epoch = there.epoch
            header.sync_state_set_epoch = there.members_epoch
        there.ids[number] = asked.broker_address or "", there.ids[number][1]
        return command.reply(fields=header.encode(), body=members_of(there))

    @serves(RequestCode.CONTROLLER_GET_REPLICA_INFO)
    def look(self, command: Command, channel: Channel) -> Command:
        asked = headers.GetReplicaInfoRequestHeader.decode(command.fields)
        there = self.sets.get(asked.broker_name or "")
        if there is None:
            raise Refused(R.CONTROLLER_BROKER_METADATA_NOT_EXIST, "Broker metadata is not existed")
        header = headers.GetReplicaInfoResponseHeader(master_epoch=there.epoch)
        if there.master:
            header.master_broker_id = there.master
            header.master_address = there.ids[there.master][0]
        return command.reply(fields=header.encode(), body=members_of(there))

    @serves(RequestCode.CONTROLLER_ELECT_MASTER)
    def elect(self, command: Command, channel: Channel) -> Command:
        asked = headers.ElectMasterRequestHeader.decode(command.fields)
        there = self._known(asked.broker_name, asked.broker_id)
        if there.master in there.alive and not asked.designate_elect:
            code = R.CONTROLLER_MASTER_STILL_EXIST
        else:
            code = R.SUCCESS
            designated = asked.designate_elect
            if not self.choose(asked.broker_name or "", asked.broker_id, designated=designated):
                raise Refused(R.CONTROLLER_ELECT_MASTER_FAILED, "Failed to elect a new master")
        header = headers.ElectMasterResponseHeader(
            master_broker_id=there.master,
            master_address=there.ids[there.master][0],
            master_epoch=there.epoch,
            sync_state_set_epoch=there.members_epoch,
        )
        body = ElectMasterResponseBody(sync_state_set=set(there.members))
        return command.reply(code, fields=header.encode(), body=body.encode())

    @serves(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET)
    def alter(self, command: Command, channel: Channel) -> Command:
        asked = headers.AlterSyncStateSetRequestHeader.decode(command.fields)
        wanted = SyncStateSet.decode(command.body)
        there = self._known(asked.broker_name, asked.master_broker_id)
        if there.members == wanted.sync_state_set:
            raise Refused(R.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED, "it is that already")
        if there.master != asked.master_broker_id:
            raise Refused(R.CONTROLLER_INVALID_MASTER, "another one is master")
        if there.epoch != asked.master_epoch:
            raise Refused(R.CONTROLLER_FENCED_MASTER_EPOCH, "an old epoch")
        if there.members_epoch != wanted.sync_state_set_epoch:
            raise Refused(R.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH, "an old set")
        if not wanted.sync_state_set <= there.ids.keys():
            raise Refused(R.CONTROLLER_INVALID_REPLICAS, "no broker has such an id")
        if not wanted.sync_state_set <= there.alive.keys():
            raise Refused(R.CONTROLLER_BROKER_NOT_ALIVE, "it does not live")
        there.members, there.members_epoch = wanted.sync_state_set, there.members_epoch + 1
        header = headers.AlterSyncStateSetResponseHeader(
            new_sync_state_set_epoch=there.members_epoch
        )
        return command.reply(fields=header.encode(), body=members_of(there))

    @serves(RequestCode.BROKER_HEARTBEAT)
    def heartbeat(self, command: Command, channel: Channel) -> Command:
        said = headers.BrokerHeartbeatRequestHeader.decode(command.fields)
        there = self.sets.get(said.broker_name)
        if there is not None and said.broker_id is not None:
            number, known = said.broker_id, there.alive.get(said.broker_id)
            standing = -1 if said.epoch is None else said.epoch, said.max_offset or -1
            if known is None:
                there.alive[number] = Heard(channel, *standing)
                channel.on_close.append(lambda _: self._lost(said.broker_name, number, channel))
            elif self.hears_last and known.channel is not channel:
                known.channel = channel
                channel.on_close.append(lambda _: self._lost(said.broker_name, number, channel))
            elif standing > (known.epoch, known.max_offset):
                known.epoch, known.max_offset = standing
        return command.reply(remark="Heart beat success")

    def _lost(self, name: str, number: int, channel: Channel) -> None:
        there = self.sets[name]
        if number in there.alive and there.alive[number].channel is channel:
            del there.alive[number]
            if there.master == number:
                self.choose(name)
        self.changed.set()

    # elections ----------------------------------------------------------------------------------

    def choose(self, name: str, asking: int | None = None, *, designated: bool = False) -> bool:
        """Elect a master, and notify the living brokers. With ``designated`` it is the one that
        asks, whatever its log has.
        """
        there = self.sets[name]
        able = [one for one in there.members if one in there.alive]
        if asking is not None and (there.epoch == 0 or designated):
            able = [asking]
        if not able:
            if asking is None:
                there.master, there.epoch = 0, there.epoch + 1
            return False
        best = max(able, key=lambda one: _rank(there, one))
        there.master, there.epoch = best, there.epoch + 1
        there.members, there.members_epoch = {best}, there.members_epoch + 1
        if self.notifies:
            self._notify(there)
        self.changed.set()
        return True

    def _notify(self, there: Set) -> None:
        header = headers.NotifyBrokerRoleChangedRequestHeader(
            master_address=there.ids[there.master][0],
            master_epoch=there.epoch,
            sync_state_set_epoch=there.members_epoch,
            master_broker_id=there.master,
        )
        for number in there.alive:
            request = Command(
                RequestCode.NOTIFY_BROKER_ROLE_CHANGED, header.encode(), members_of(there)
            )
            self._session.keep_task(self._tell(there.ids[number][0], request))

    async def _tell(self, address: str, request: Command) -> None:
        try:
            await self._session.invoke_oneway(address, request)
        except MQError:  # nothing listens there while a broker takes a role
            pass


def _rank(there: Set, number: int) -> tuple[int, int, int]:
    heard = there.alive.get(number)
    return (0, 0, -number) if heard is None else (heard.epoch, heard.max_offset, -number)


def members_of(there: Set) -> bytes:
    return SyncStateSet(
        sync_state_set=set(there.members), sync_state_set_epoch=there.members_epoch
    ).encode()
