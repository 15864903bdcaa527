"""A replica set as stored by a controller, and its transitions.

  ReplicaSet   the brokers of one name: ids, addresses, master, sync state set; immutable
  functions    compute the next state from such a set, or None, and a request; raise Refused

Nothing here waits or depends on time: ``alive`` says whether a broker is alive. The result of a
function becomes valid when it has been written (`registry.py`). Source: ReplicasInfoManager of 5.x,
with its codes and remarks.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, NoReturn

import orjson

from mq.daemons.dispatch import Refused
from mq.protocol.codes import ResponseCode

FIRST_ID = 1  # MixAll.FIRST_BROKER_CONTROLLER_ID
# Limit of brokers of one name: all are written with every change of their set.
MOST_REPLICAS = 64
# Limit in characters of an address or a check code, which is an address and a time.
MOST_TEXT = 512

# Whether the broker with an id is alive.
Alive = Callable[[int], bool]


class Replica(NamedTuple):
    """A broker: its address, and the code with which it may apply for its id again."""

    address: str
    check_code: str


@dataclass(frozen=True)
class ReplicaSet:
    """The brokers of one name. ``members`` is the sync state set; ``version`` is the etcd revision
    of this state, 0 for a set that is not stored yet.
    """

    cluster: str
    name: str
    replicas: Mapping[int, Replica] = field(default_factory=dict)
    next_id: int = FIRST_ID
    master_id: int | None = None
    master_epoch: int = 0
    members: frozenset[int] = frozenset()
    members_epoch: int = 0
    version: int = 0

    @property
    def master_address(self) -> str | None:
        return self.address(self.master_id)

    def address(self, broker_id: int | None) -> str | None:
        """The address of a broker, None if it does not belong to this set."""
        replica = None if broker_id is None else self.replicas.get(broker_id)
        return None if replica is None else replica.address

    @property
    def addresses(self) -> dict[int, str]:
        return {broker_id: replica.address for broker_id, replica in self.replicas.items()}

    def encode(self) -> bytes:
        """The stored form: a JSON object."""
        return orjson.dumps(
            {
                "clusterName": self.cluster,
                "brokerName": self.name,
                "replicas": {str(key): list(value) for key, value in self.replicas.items()},
                "nextBrokerId": self.next_id,
                "masterBrokerId": self.master_id,
                "masterEpoch": self.master_epoch,
                "syncStateSet": sorted(self.members),
                "syncStateSetEpoch": self.members_epoch,
            }
        )

    @classmethod
    def decode(cls, data: bytes, version: int) -> "ReplicaSet":
        """Decode the stored form. Raises ValueError."""
        try:
            kept = orjson.loads(data)
            return cls(
                cluster=kept["clusterName"],
                name=kept["brokerName"],
                replicas={int(key): Replica(*value) for key, value in kept["replicas"].items()},
                next_id=kept["nextBrokerId"],
                master_id=kept["masterBrokerId"],
                master_epoch=kept["masterEpoch"],
                members=frozenset(kept["syncStateSet"]),
                members_epoch=kept["syncStateSetEpoch"],
                version=version,
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a replica set: {error!r}") from None


def apply_id(
    kept: ReplicaSet | None, cluster: str, name: str, broker_id: int, check_code: str
) -> ReplicaSet:
    """Assign an id to a broker. The same code may apply again for its id.

    Unlike Java, an id above the next one is refused, and a set belongs to one cluster.
    """
    code = ResponseCode.CONTROLLER_BROKER_ID_INVALID
    if not 0 < len(check_code) <= MOST_TEXT:
        _refuse(code, f"registerCheckCode has {len(check_code)} characters, at most {MOST_TEXT}")
    if kept is None:
        if broker_id != FIRST_ID:
            _refuse(
                code,
                f"Broker-set: {name} hasn't been registered in controller, but broker try to "
                f"apply brokerId: {broker_id}",
            )
        kept = ReplicaSet(cluster, name)
    if kept.cluster != cluster:
        _refuse(code, f"the broker name {name} is in the cluster {kept.cluster}, not in {cluster}")
    known = kept.replicas.get(broker_id)
    if known is not None and known.check_code == check_code:
        return kept
    if broker_id != kept.next_id:
        _refuse(code, f"Fail to apply brokerId: {broker_id} in broker-set: {name}")
    if len(kept.replicas) >= MOST_REPLICAS:
        _refuse(code, f"broker-set {name} has reached the limit of {MOST_REPLICAS} brokers")
    replica = Replica(check_code.partition(";")[0], check_code)
    replicas = {**kept.replicas, broker_id: replica}
    return replace(kept, replicas=replicas, next_id=broker_id + 1)


def register(kept: ReplicaSet | None, name: str, broker_id: int, address: str) -> ReplicaSet:
    """Set the current address of a broker that has an id."""
    code = ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
    if kept is None:
        _refuse(code, f"Broker-set: {name} hasn't been registered in controller")
    known = kept.replicas.get(broker_id)
    if known is None:
        _refuse(code, f"BrokerId: {broker_id} hasn't been registered in broker-set: {name}")
    if not 0 < len(address) <= MOST_TEXT:
        _refuse(
            ResponseCode.CONTROLLER_INVALID_REQUEST,
            f"brokerAddress has {len(address)} characters, at most {MOST_TEXT}",
        )
    if known.address == address:
        return kept
    replicas = {**kept.replicas, broker_id: known._replace(address=address)}
    return replace(kept, replicas=replicas)


class Alter(NamedTuple):
    """A master's request to change the sync state set."""

    master_id: int | None
    master_epoch: int | None
    members: frozenset[int]
    members_epoch: int


def alter(kept: ReplicaSet | None, asked: Alter, alive: Alive) -> ReplicaSet:
    """Change the sync state set. The checks are in Java's order."""
    failed = ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED
    start = "Rejecting alter syncStateSet request because the"
    if kept is None:
        _refuse(failed, "Broker metadata is not existed")
    if asked.members == kept.members:
        _refuse(
            failed,
            "The newSyncStateSet is equal with oldSyncStateSet, no needed to update syncStateSet",
        )
    if kept.master_id is None or kept.master_id != asked.master_id:
        _refuse(
            ResponseCode.CONTROLLER_INVALID_MASTER,
            f"{start} current leader is:{{{kept.master_id}}}, not {{{asked.master_id}}}",
        )
    if asked.master_epoch != kept.master_epoch:
        _refuse(
            ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
            f"{start} current master epoch is:{{{kept.master_epoch}}}, "
            f"not {{{asked.master_epoch}}}",
        )
    if asked.members_epoch != kept.members_epoch:
        _refuse(
            ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
            f"{start} current syncStateSet epoch is:{{{kept.members_epoch}}}, "
            f"not {{{asked.members_epoch}}}",
        )
    for member in sorted(asked.members):
        if member not in kept.replicas:
            _refuse(
                ResponseCode.CONTROLLER_INVALID_REPLICAS,
                f"{start} replicas {{{member}}} don't exist",
            )
        if not alive(member):
            _refuse(
                ResponseCode.CONTROLLER_BROKER_NOT_ALIVE,
                f"{start} replicas {{{member}}} don't alive",
            )
    if kept.master_id not in asked.members:
        _refuse(
            failed, f"{start} newSyncStateSet don't contains origin leader {{{kept.master_id}}}"
        )
    return replace(kept, members=asked.members, members_epoch=kept.members_epoch + 1)


def with_master(kept: ReplicaSet, master_id: int) -> ReplicaSet:
    """Set a new master, which alone is in sync."""
    return replace(
        kept,
        master_id=master_id,
        master_epoch=kept.master_epoch + 1,
        members=frozenset((master_id,)),
        members_epoch=kept.members_epoch + 1,
    )


def without_master(kept: ReplicaSet) -> ReplicaSet:
    """Remove a dead master if no broker in sync is alive: only these may be the next master."""
    return replace(kept, master_id=None, master_epoch=kept.master_epoch + 1)


def clean(
    kept: ReplicaSet | None, name: str, ids_text: str, living_too: bool, alive: Alive
) -> ReplicaSet | None:
    """Remove brokers, or the whole set if no ids are given: None.

    Unlike Java, -l does not ignore the ids.
    """
    code = ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
    ids = _ids(ids_text, code)
    if kept is None:
        _refuse(code, f"Broker {name} is not existed,clean broker data failure.")
    if not living_too:
        if not ids and kept.master_id is not None:
            _refuse(code, f"Broker {name} is still alive, clean up failure")
        for broker_id in ids:
            if alive(broker_id):
                _refuse(code, f"Broker [{name},  {broker_id}] is still alive, clean up failure")
    left = {key: value for key, value in kept.replicas.items() if ids and key not in ids}
    if not left:
        return None
    changed = replace(kept, replicas=left)
    if not kept.members.isdisjoint(ids):
        members = kept.members.difference(ids)
        changed = replace(changed, members=members, members_epoch=kept.members_epoch + 1)
    if kept.master_id in ids:
        changed = without_master(changed)
    return changed


def _ids(text: str, code: ResponseCode) -> frozenset[int]:
    try:
        return frozenset(int(part) for part in text.split(";") if part.strip())
    except ValueError:
        _refuse(
            code,
            f"Please set the option <brokerControllerIdsToClean> according to the format: {text!r} "
            f'is not like "1;2"',
        )


def _refuse(code: ResponseCode, remark: str) -> NoReturn:
    raise Refused(code, remark)
