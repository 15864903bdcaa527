"""Requests of brokers and administrators to a controller. Source: ControllerRequestProcessor."""

import logging

import orjson

from mq.daemons.channel import Channel
from mq.daemons.config_requests import reply_to_update, update_settings
from mq.daemons.controller.config import ControllerSettings
from mq.daemons.controller.elections import Elections, members_body
from mq.daemons.controller.leadership import Leadership
from mq.daemons.controller.liveness import Liveness
from mq.daemons.controller.registry import MOST_NAME, Registry
from mq.daemons.controller.replica_set import (
    FIRST_ID,
    MOST_TEXT,
    Alter,
    ReplicaSet,
    alter,
    apply_id,
    clean,
    register,
)
from mq.daemons.dispatch import Refused
from mq.daemons.request_codes import serves
from mq.protocol.bodies.cluster import BrokerMemberGroup
from mq.protocol.bodies.controller import (
    BrokerReplicasInfo,
    ElectMasterResponseBody,
    ReplicaIdentity,
    ReplicasInfo,
    SyncStateSet,
)
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.headers.controller import (
    AlterSyncStateSetRequestHeader,
    AlterSyncStateSetResponseHeader,
    ApplyBrokerIdRequestHeader,
    ApplyBrokerIdResponseHeader,
    BrokerHeartbeatRequestHeader,
    CleanControllerBrokerDataRequestHeader,
    ElectMasterRequestHeader,
    ElectMasterResponseHeader,
    GetMetaDataResponseHeader,
    GetNextBrokerIdRequestHeader,
    GetNextBrokerIdResponseHeader,
    GetReplicaInfoRequestHeader,
    GetReplicaInfoResponseHeader,
    RegisterBrokerToControllerRequestHeader,
    RegisterBrokerToControllerResponseHeader,
)

log = logging.getLogger(__name__)


class MembershipHandlers:
    """Serves requests of brokers: ids, masters, sync state sets."""

    def __init__(self, registry: Registry, liveness: Liveness, elections: Elections) -> None:
        self._registry = registry
        self._liveness = liveness
        self._elections = elections

    @serves(RequestCode.BROKER_HEARTBEAT)
    def heartbeat(self, command: Command, channel: Channel) -> Command:
        """Register the heartbeat of a broker. Every controller gets it, whether it leads or not."""
        header = BrokerHeartbeatRequestHeader.decode(command.fields)
        if header.broker_id is None:
            raise Refused(ResponseCode.CONTROLLER_INVALID_REQUEST, "Heart beat with empty brokerId")
        if len(_name(header.broker_name)) > MOST_NAME or len(header.broker_addr) > MOST_TEXT:
            raise Refused(
                ResponseCode.CONTROLLER_INVALID_REQUEST,
                f"a name has {MOST_NAME} characters at most, an address {MOST_TEXT}",
            )
        self._liveness.heard(header, channel)
        return command.reply(remark="Heart beat success")

    @serves(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID)
    def next_id(self, command: Command, channel: Channel) -> Command:
        """Return the id for which a broker without one may apply."""
        header = GetNextBrokerIdRequestHeader.decode(command.fields)
        kept = self._registry.get(_name(header.broker_name))
        answer = GetNextBrokerIdResponseHeader(
            cluster_name=header.cluster_name,
            broker_name=header.broker_name,
            next_broker_id=FIRST_ID if kept is None else kept.next_id,
        )
        return command.reply(fields=answer.encode())

    @serves(RequestCode.CONTROLLER_APPLY_BROKER_ID)
    async def apply_id(self, command: Command, channel: Channel) -> Command:
        """Assign an id to a broker."""
        header = ApplyBrokerIdRequestHeader.decode(command.fields)
        name, cluster = _name(header.broker_name), header.cluster_name or ""
        wanted, code = header.applied_broker_id or 0, header.register_check_code or ""
        await self._registry.change(name, lambda kept: apply_id(kept, cluster, name, wanted, code))
        answer = ApplyBrokerIdResponseHeader(cluster_name=cluster, broker_name=name)
        return command.reply(fields=answer.encode())

    @serves(RequestCode.CONTROLLER_REGISTER_BROKER)
    async def register(self, command: Command, channel: Channel) -> Command:
        """Register the address of a broker that has an id; returns its master."""
        header = RegisterBrokerToControllerRequestHeader.decode(command.fields)
        name, broker_id = _name(header.broker_name), header.broker_id or 0
        address = header.broker_address or ""

        def step(kept: ReplicaSet | None) -> ReplicaSet:
            self._check_is_one(name, broker_id, address)
            return register(kept, name, broker_id, address)

        kept = await self._registry.change(name, step)
        assert kept is not None
        answer = RegisterBrokerToControllerResponseHeader(
            cluster_name=header.cluster_name, broker_name=name
        )
        if kept.master_id is not None and self._liveness.may_live(name, kept.master_id):
            answer = RegisterBrokerToControllerResponseHeader(
                cluster_name=header.cluster_name,
                broker_name=name,
                master_broker_id=kept.master_id,
                master_address=kept.master_address,
                master_epoch=kept.master_epoch,
                sync_state_set_epoch=kept.members_epoch,
            )
        return command.reply(fields=answer.encode(), body=members_body(kept))

    def _check_is_one(self, name: str, broker_id: int, address: str) -> None:
        """Check that no other live broker has this id. Raises Refused.

        Java does not check this: a copy of a master's store acts as a second master there, in the
        same epoch.
        """
        live = self._liveness.get(name, broker_id)
        if live is not None and live.address != address:
            raise Refused(
                ResponseCode.CONTROLLER_INVALID_REQUEST,
                f"brokerId {broker_id} of {name} is alive at {live.address} and cannot be at "
                f"{address[:MOST_TEXT]}, too: stop one of the two",
            )

    @serves(RequestCode.CONTROLLER_GET_REPLICA_INFO)
    def replica_info(self, command: Command, channel: Channel) -> Command:
        """Return the master and the sync state set of a replica set."""
        header = GetReplicaInfoRequestHeader.decode(command.fields)
        kept = self._registry.get(header.broker_name or "")
        if kept is None:
            raise Refused(
                ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST, "Broker metadata is not existed"
            )
        answer = GetReplicaInfoResponseHeader(
            master_broker_id=kept.master_id,
            master_address=kept.master_address,
            master_epoch=kept.master_epoch,
        )
        return command.reply(fields=answer.encode(), body=members_body(kept))

    @serves(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET)
    async def alter(self, command: Command, channel: Channel) -> Command:
        """Change the sync state set at the request of the master."""
        header = AlterSyncStateSetRequestHeader.decode(command.fields)
        body = SyncStateSet.decode(command.body)
        asked = Alter(
            header.master_broker_id,
            header.master_epoch,
            frozenset(body.sync_state_set),
            body.sync_state_set_epoch,
        )
        name = _name(header.broker_name)

        def is_alive(broker_id: int) -> bool:
            return self._liveness.is_alive(name, broker_id)

        kept = await self._registry.change(name, lambda kept: alter(kept, asked, is_alive))
        assert kept is not None
        log.info("in sync of %s: %s, epoch %d", name, sorted(kept.members), kept.members_epoch)
        answer = AlterSyncStateSetResponseHeader(new_sync_state_set_epoch=kept.members_epoch)
        return command.reply(fields=answer.encode(), body=members_body(kept))

    @serves(RequestCode.CONTROLLER_ELECT_MASTER)
    async def elect(self, command: Command, channel: Channel) -> Command:
        """Hold an election at the request of a broker without a master, or of an administrator."""
        header = ElectMasterRequestHeader.decode(command.fields)
        asking = None if header.broker_id < FIRST_ID else header.broker_id
        outcome = await self._elections.hold(
            _name(header.broker_name), broker_id=asking, designated=header.designate_elect
        )
        if outcome is None:
            raise Refused(
                ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
                "Broker hasn't been registered",
            )
        kept = outcome.kept
        if outcome.is_new:
            return _elected(command, kept, ResponseCode.SUCCESS, None)
        master = kept.master_id
        if master is not None and self._liveness.may_live(kept.name, master):
            if not header.designate_elect or asking == master:
                remark = (
                    f"The old master {master} is still alive, not need to elect new master for "
                    f"broker {kept.name}"
                )
                return _elected(command, kept, ResponseCode.CONTROLLER_MASTER_STILL_EXIST, remark)
        if asking is None:
            raise Refused(
                ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE,
                "Old master has down and failed to elect a new broker master",
            )
        raise Refused(ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, "Failed to elect a new master")


class AdminHandlers:
    """Serves requests of administrators: the leader, sync state sets, removals, settings."""

    def __init__(
        self,
        settings: ControllerSettings,
        registry: Registry,
        liveness: Liveness,
        leadership: Leadership,
    ) -> None:
        self._settings = settings
        self._registry = registry
        self._liveness = liveness
        self._leadership = leadership

    @serves(RequestCode.CONTROLLER_GET_METADATA_INFO)
    def metadata(self, command: Command, channel: Channel) -> Command:
        """Return the leader; no address if there is none."""
        leader = self._leadership.leader
        leads = self._leadership.leads
        answer = GetMetaDataResponseHeader(
            group=self._settings.controller.controller_d_leger_group,
            controller_leader_id=_id_of(leader) if leader else None,
            controller_leader_address=leader or None,
            is_leader=leads,
            peers="".join(f"{_id_of(one)}:{one};" for one in self._leadership.controllers),
        )
        return command.reply(fields=answer.encode())

    @serves(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA)
    def sync_state_data(self, command: Command, channel: Channel) -> Command:
        """Return the replicas of the named replica sets."""
        try:
            names = orjson.loads(command.body) if command.body else []
        except orjson.JSONDecodeError as error:
            raise Refused(ResponseCode.CONTROLLER_INVALID_REQUEST, f"no names: {error}") from None
        if not isinstance(names, list):
            raise Refused(ResponseCode.CONTROLLER_INVALID_REQUEST, "no list of names")
        self._registry.check_leads()
        found = {}
        for name in dict.fromkeys(name for name in names if isinstance(name, str)):
            kept = self._registry.get(name)
            if kept is not None:
                found[name] = self._replicas(kept)
        return command.reply(body=BrokerReplicasInfo(replicas_info_table=found).encode())

    def _replicas(self, kept: ReplicaSet) -> ReplicasInfo:
        identities = {
            broker_id: ReplicaIdentity(
                broker_name=kept.name,
                broker_id=broker_id,
                broker_address=replica.address,
                alive=self._liveness.is_alive(kept.name, broker_id),
            )
            for broker_id, replica in kept.replicas.items()
        }
        return ReplicasInfo(
            master_broker_id=kept.master_id,
            master_address=kept.master_address,
            master_epoch=kept.master_epoch,
            sync_state_set_epoch=kept.members_epoch,
            in_sync_replicas=[one for key, one in identities.items() if key in kept.members],
            not_in_sync_replicas=[
                one for key, one in identities.items() if key not in kept.members
            ],
        )

    @serves(RequestCode.CLEAN_BROKER_DATA)
    async def clean(self, command: Command, channel: Channel) -> Command:
        """Remove brokers that will not return."""
        header = CleanControllerBrokerDataRequestHeader.decode(command.fields)
        name = header.broker_name
        ids = header.broker_controller_ids_to_clean or ""

        def is_alive(broker_id: int) -> bool:
            return self._liveness.is_alive(name, broker_id)

        await self._registry.change(
            name, lambda kept: clean(kept, name, ids, header.is_clean_living_broker, is_alive)
        )
        log.warning("%s removed brokers of %s: %s", channel.remote, name, ids or "all")
        return command.reply()

    @serves(RequestCode.UPDATE_CONTROLLER_CONFIG)
    def update(self, command: Command, channel: Channel) -> Command:
        """Change settings, all or none; some take effect at the next start."""
        return reply_to_update(command, update_settings(self._settings, command, channel))

    @serves(RequestCode.GET_CONTROLLER_CONFIG)
    def get(self, command: Command, channel: Channel) -> Command:
        """All settings as a .properties text."""
        return command.reply(body=self._settings.text().encode())


def _elected(command: Command, kept: ReplicaSet, code: ResponseCode, remark: str | None) -> Command:
    header = ElectMasterResponseHeader(
        master_broker_id=kept.master_id,
        master_address=kept.master_address,
        master_epoch=kept.master_epoch,
        sync_state_set_epoch=kept.members_epoch,
    )
    group = None
    if code == ResponseCode.SUCCESS:
        group = BrokerMemberGroup(
            cluster=kept.cluster, broker_name=kept.name, broker_addrs=kept.addresses
        )
    body = ElectMasterResponseBody(
        broker_member_group=group, sync_state_set=set(kept.members)
    ).encode()
    return command.reply(code, header.encode(), body, remark=remark)


def _id_of(address: str) -> str:
    """The name of a controller in lists; those of Java have names like n0."""
    return address.replace(":", "-")


def _name(name: str | None) -> str:
    if not name:
        raise Refused(ResponseCode.CONTROLLER_INVALID_REQUEST, "brokerName is empty")
    return name
