"""The state of a replica set as controllers report it: its master, and the in-sync members."""

from dataclasses import dataclass
from typing import Protocol, Self

from mq.client.errors import ClientError
from mq.client.transport.caller import parse_address
from mq.protocol.bodies import ElectMasterResponseBody, SyncStateSet
from mq.protocol.command import Command
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.headers.controller import (
    ElectMasterResponseHeader,
    GetReplicaInfoResponseHeader,
    RegisterBrokerToControllerResponseHeader,
)


class _NamesMaster(Protocol):
    """The fields that the headers of the three replies share."""

    master_broker_id: int | None
    master_address: str | None
    master_epoch: int | None


@dataclass(frozen=True, slots=True)
class ReplicaSet:
    """A replica set at one moment. ``master_id`` is 0, the id of no member, without a master.

    ``master_epoch`` and ``members_epoch`` are -1 if the reply lacks them. All three parsers raise
    RemoteProtocolError.
    """

    master_id: int
    master_address: str
    master_epoch: int
    members: frozenset[int]
    members_epoch: int

    @property
    def has_master(self) -> bool:
        return bool(self.master_id and self.master_address)

    @classmethod
    def registered(cls, answer: Command) -> Self:
        """Parse a reply to CONTROLLER_REGISTER_BROKER, which names a master only if it is alive."""
        header = RegisterBrokerToControllerResponseHeader.decode(answer.fields)
        return cls._of(header, _members_of(answer))

    @classmethod
    def looked_up(cls, answer: Command) -> Self:
        """Parse a reply to CONTROLLER_GET_REPLICA_INFO."""
        header = GetReplicaInfoResponseHeader.decode(answer.fields)
        return cls._of(header, _members_of(answer))

    @classmethod
    def elected(cls, answer: Command) -> Self:
        """Parse a reply to CONTROLLER_ELECT_MASTER: with a new master, or the one that still is
        master.
        """
        header = ElectMasterResponseHeader.decode(answer.fields)
        body = ElectMasterResponseBody.decode(answer.body) if answer.body else None
        members = SyncStateSet(
            sync_state_set=set() if body is None else body.sync_state_set,
            sync_state_set_epoch=-1
            if header.sync_state_set_epoch is None
            else header.sync_state_set_epoch,
        )
        return cls._of(header, members)

    @classmethod
    def _of(cls, header: _NamesMaster, members: SyncStateSet) -> Self:
        if header.master_address:
            try:
                parse_address(header.master_address)
            except ClientError as error:
                raise RemoteProtocolError(f"the address of the master: {error}") from None
        return cls(
            master_id=header.master_broker_id or 0,
            master_address=header.master_address or "",
            master_epoch=-1 if header.master_epoch is None else header.master_epoch,
            members=frozenset(members.sync_state_set),
            members_epoch=members.sync_state_set_epoch,
        )


def _members_of(answer: Command) -> SyncStateSet:
    if not answer.body:
        return SyncStateSet(sync_state_set_epoch=-1)
    return SyncStateSet.decode(answer.body)
