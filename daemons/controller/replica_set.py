"""A broker set as a controller keeps it, and what may become of it.

    ReplicaSet   the brokers of one name: ids, addresses, master, who is in sync; never changed
    functions    from such a set, or None, and a request to the next one; raise Refused

Nothing here waits or knows of time: who is alive is asked of ``alive``. What a function returns
counts when it is written (`registry.py`), not before. Source: ReplicasInfoManager of 5.x, with its
codes and remarks.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, NoReturn

import orjson

from mq.daemons.dispatch import Refused
from mq.protocol.codes import ResponseCode

FIRST_ID = 1  # MixAll.FIRST_BROKER_CONTROLLER_ID
#: Brokers of one name: each is written with every change of its set.
MOST_REPLICAS = 64
#: Of an address or a check code, which is an address and a time.
MOST_TEXT = 512

#: Whether the broker with an id lives.
Alive = Callable[[int], bool]


class Replica(NamedTuple):
    """A broker: where it is, and the code by which it may apply for its id again."""

    address: str
    check_code: str


@dataclass(frozen=True)
class ReplicaSet:
    """The brokers of one name. ``members`` are those in sync; ``version`` says which state of the
    key in etcd this is, 0 for one that is not there yet."""

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
        """Where a broker is, None for one that is not of this set."""
        replica = None if broker_id is None else self.replicas.get(broker_id)
        return None if replica is None else replica.address

    @property
    def addresses(self) -> dict[int, str]:
        return {broker_id: replica.address for broker_id, replica in self.replicas.items()}

    def encode(self) -> bytes:
        """As it is kept: a JSON object."""
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
        """Raises ValueError for what this is not."""
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
            raise ValueError(f"no broker set: {error!r}") from None


def apply_id(
    kept: ReplicaSet | None, cluster: str, name: str, broker_id: int, check_code: str
) -> ReplicaSet:
    """Give an id to a broker. The same code may apply again for its id.

    Not as in Java, an id above the next one is refused, and a set is of one cluster.
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
        _refuse(code, f"the broker name {name} is of the cluster {kept.cluster}, not of {cluster}")
    known = kept.replicas.get(broker_id)
    if known is not None and known.check_code == check_code:
        return kept
    if broker_id != kept.next_id:
        _refuse(code, f"Fail to apply brokerId: {broker_id} in broker-set: {name}")
    if len(kept.replicas) >= MOST_REPLICAS:
        _refuse(code, f"broker-set {name} has {MOST_REPLICAS} brokers already, the most there are")
    replica = Replica(check_code.partition(";")[0], check_code)
    replicas = {**kept.replicas, broker_id: replica}
    return replace(kept, replicas=replicas, next_id=broker_id + 1)


def register(kept: ReplicaSet | None, name: str, broker_id: int, address: str) -> ReplicaSet:
    """A broker that has an id says where it is now."""
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
    """What a master says of who is in sync."""

    master_id: int | None
    master_epoch: int | None
    members: frozenset[int]
    members_epoch: int


def alter(kept: ReplicaSet | None, asked: Alter, alive: Alive) -> ReplicaSet:
    """Have other brokers in sync. Its checks are in the order of Java's."""
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
    """A new master is elected, who alone is in sync."""
    return replace(
        kept,
        master_id=master_id,
        master_epoch=kept.master_epoch + 1,
        members=frozenset((master_id,)),
        members_epoch=kept.members_epoch + 1,
    )


def without_master(kept: ReplicaSet) -> ReplicaSet:
    """The master is dead and none of those in sync lives: only one of them may be the next."""
    return replace(kept, master_id=None, master_epoch=kept.master_epoch + 1)


def clean(
    kept: ReplicaSet | None, name: str, ids_text: str, living_too: bool, alive: Alive
) -> ReplicaSet | None:
    """Forget brokers, or the whole set where no ids are given: None.

    Not as in Java, -l does not ignore the ids.
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
