"""The records of a master: settings of the cluster, brokers, topics, groups, and consume rights.

Each record is a frozen dataclass that reads and writes itself as JSON: the row of a database, the
value of a key in etcd. Names and defaults are those of TubeMQ's entities (metastore.dao.entity).
"""

from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from types import UnionType
from typing import Any, ClassVar, Self, get_args, get_origin

import orjson

from mq.protocol.tube.codes import BROKER_PORT, BROKER_TLS_PORT, BROKER_WEB_PORT, UNDEFINED

# The topic that every broker has: hourly offsets of groups.
SYSTEM_TOPIC = "__offset_history__"
_MEGABYTE = 1024 * 1024


class Malformed(Exception):
    """A stored record cannot be read. The text names it and the reason."""


class ManageStatus(IntEnum):
    """The state of a broker as set by an administrator. Stored values: never renumber."""

    DRAFT = 1
    ONLINE = 5
    ONLY_READ = 6
    ONLY_WRITE = 7
    OFFLINE = 9

    @property
    def text(self) -> str:
        """The name for administrators."""
        return self.name.lower().replace("_", "-")

    @property
    def publishes(self) -> bool:
        return self in (ManageStatus.ONLINE, ManageStatus.ONLY_WRITE)

    @property
    def subscribes(self) -> bool:
        return self in (ManageStatus.ONLINE, ManageStatus.ONLY_READ)

    @property
    def is_online(self) -> bool:
        return self.publishes or self.subscribes

    @classmethod
    def of(cls, *, publishes: bool, subscribes: bool) -> "ManageStatus":
        """Return the status with exactly these permissions."""
        if publishes:
            return cls.ONLINE if subscribes else cls.ONLY_WRITE
        return cls.ONLY_READ if subscribes else cls.OFFLINE


class TopicStatus(IntEnum):
    """The progress of a topic's removal from a broker. Stored values: never renumber."""

    OK = 0
    SOFT_DELETE = 1
    SOFT_REMOVE = 2
    HARD_REMOVE = 3

    @property
    def is_removed(self) -> bool:
        return self in (TopicStatus.SOFT_REMOVE, TopicStatus.HARD_REMOVE)


@dataclass(frozen=True, slots=True)
class Audit:
    """The users who created and last changed a record, and the times (yyyyMMddHHmmss); its serial
    changes with each change."""

    data_version: int = UNDEFINED
    serial: int = UNDEFINED
    create_user: str = ""
    create_date: str = ""
    modify_user: str = ""
    modify_date: str = ""

    def web(self) -> dict[str, Any]:
        return {
            "dataVersionId": self.data_version,
            "serialId": self.serial,
            "createUser": self.create_user,
            "createDate": self.create_date,
            "modifyUser": self.modify_user,
            "modifyDate": self.modify_date,
        }


@dataclass(frozen=True, slots=True)
class Props:
    """The properties of a topic on a broker (TopicPropGroup). Cache sizes are in units of 512 KiB
    and
    512 messages."""

    num_topic_stores: int = 1
    num_partitions: int = 1
    unflush_threshold: int = 1000
    unflush_interval: int = 10_000  # ms
    unflush_data_hold: int = 0
    mem_cache_msg_size_in_mb: int = 3
    mem_cache_msg_cnt_in_k: int = 10
    mem_cache_flush_intvl: int = 20_000  # ms
    accept_publish: bool = True
    accept_subscribe: bool = True
    delete_policy: str = "delete,168h"

    def web(self) -> dict[str, Any]:
        return {
            "numTopicStores": self.num_topic_stores,
            "numPartitions": self.num_partitions,
            "unflushThreshold": self.unflush_threshold,
            "unflushInterval": self.unflush_interval,
            "unflushDataHold": self.unflush_data_hold,
            "memCacheMsgSizeInMB": self.mem_cache_msg_size_in_mb,
            "memCacheMsgCntInK": self.mem_cache_msg_cnt_in_k,
            "memCacheFlushIntvl": self.mem_cache_flush_intvl,
            "acceptPublish": self.accept_publish,
            "acceptSubscribe": self.accept_subscribe,
            "deletePolicy": self.delete_policy,
            "dataStoreType": UNDEFINED,
            "dataPath": "",
        }


@dataclass(frozen=True, slots=True)
class CatalogRecord:
    """Base of the records, which are stored under a kind and a key."""

    kind: ClassVar[str] = ""

    @property
    def key(self) -> str:
        raise NotImplementedError

    def encode(self) -> bytes:
        """Return the stored form."""
        return orjson.dumps(self, option=orjson.OPT_SORT_KEYS)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode a stored record. Raises Malformed."""
        try:
            return cls(**_values(cls, orjson.loads(data)))
        except (ValueError, TypeError) as error:
            raise Malformed(f"{cls.kind} {data[:200]!r}: {error}") from None


@dataclass(frozen=True, slots=True)
class ClusterSettings(CatalogRecord):
    """The settings of the whole cluster (ClusterSettingEntity)."""

    kind: ClassVar[str] = "cluster"

    broker_port: int = BROKER_PORT
    broker_tls_port: int = BROKER_TLS_PORT
    broker_web_port: int = BROKER_WEB_PORT
    max_msg_size_in_mb: int = 1
    qry_priority: int = 301
    flow_enabled: bool = False
    flow_count: int = 0
    flow_rules: str = "[]"
    props: Props = field(default_factory=Props)
    audit: Audit = field(default_factory=Audit)

    @property
    def key(self) -> str:
        return "default_cluster_config"

    @property
    def max_msg_bytes(self) -> int:
        return max_msg_bytes(self.max_msg_size_in_mb)


@dataclass(frozen=True, slots=True)
class BrokerConf(CatalogRecord):
    """A broker as set up by an administrator (BrokerConfEntity)."""

    kind: ClassVar[str] = "broker"

    broker_id: int
    ip: str
    port: int = BROKER_PORT
    tls_port: int = BROKER_TLS_PORT
    web_port: int = BROKER_WEB_PORT
    status: ManageStatus = ManageStatus.DRAFT
    region: int = 0
    group: int = 0
    props: Props = field(default_factory=Props)
    audit: Audit = field(default_factory=Audit)

    @property
    def key(self) -> str:
        return str(self.broker_id)


@dataclass(frozen=True, slots=True)
class TopicDeploy(CatalogRecord):
    """A topic on a broker (TopicDeployEntity)."""

    kind: ClassVar[str] = "topic"

    broker_id: int
    topic: str
    status: TopicStatus = TopicStatus.OK
    props: Props = field(default_factory=Props)
    audit: Audit = field(default_factory=Audit)

    @property
    def key(self) -> str:
        return deploy_key(self.broker_id, self.topic)


@dataclass(frozen=True, slots=True)
class TopicControl(CatalogRecord):
    """The settings of a topic on all brokers (TopicCtrlEntity): whether only allowed groups may
    consume
    it, and the maximum size of a message."""

    kind: ClassVar[str] = "topic-control"

    topic: str
    topic_id: int = 0
    auth_enabled: bool = False
    max_msg_size_in_mb: int = UNDEFINED
    audit: Audit = field(default_factory=Audit)

    @property
    def key(self) -> str:
        return self.topic


@dataclass(frozen=True, slots=True)
class GroupControl(CatalogRecord):
    """The limits of a group (GroupResCtrlEntity)."""

    kind: ClassVar[str] = "group"

    group: str
    res_check: bool = False
    # maximum number of brokers that serve one member; 0: as in the settings
    broker_client_rate: int = 0
    qry_priority: int = 301
    flow_enabled: bool = False
    flow_count: int = 0
    flow_rules: str = "[]"
    audit: Audit = field(default_factory=Audit)

    @property
    def key(self) -> str:
        return self.group


@dataclass(frozen=True, slots=True)
class ConsumeControl(CatalogRecord):
    """Whether a group may consume a topic, and which filter items (GroupConsumeCtrlEntity)."""

    kind: ClassVar[str] = "consume"

    group: str
    topic: str
    enabled: bool = True
    reason: str = ""
    filter_enabled: bool = False
    filters: list[str] = field(default_factory=list)
    audit: Audit = field(default_factory=Audit)

    @property
    def key(self) -> str:
        return consume_key(self.group, self.topic)


KINDS: dict[str, type[CatalogRecord]] = {
    one.kind: one
    for one in (
        ClusterSettings,
        BrokerConf,
        TopicDeploy,
        TopicControl,
        GroupControl,
        ConsumeControl,
    )
}


def max_msg_bytes(megabytes: int) -> int:
    """Return the limit for producers (SettingValidUtils.validAndXfeMaxMsgSizeFromMBtoB)."""
    return megabytes * _MEGABYTE


def deploy_key(broker_id: int, topic: str) -> str:
    return f"{broker_id}-{topic}"


def consume_key(group: str, topic: str) -> str:
    """Return the key; groups and topics have no slash."""
    return f"{topic}/{group}"


def touched(old: Audit, *, user: str, date: str, serial: int, version: int = UNDEFINED) -> Audit:
    """Return the audit of a record that is changed now."""
    return replace(
        old,
        serial=serial,
        modify_user=user,
        modify_date=date,
        data_version=old.data_version if version == UNDEFINED else version,
    )


def _values(kind: type[Any], found: Any) -> dict[str, Any]:
    """Return the attributes of a dataclass from JSON. Raises ValueError."""
    if not isinstance(found, dict):
        raise ValueError("no JSON object")
    declared = {one.name: one.type for one in fields(kind)}
    unknown = found.keys() - declared
    if unknown:
        raise ValueError(f"{', '.join(sorted(unknown))}: unknown; a later release wrote it")
    return {name: _value(declared[name], value, name) for name, value in found.items()}


def _value(kind: Any, value: Any, name: str) -> Any:
    if isinstance(kind, UnionType) or get_origin(kind) is list:
        (item, *_) = get_args(kind)
        if not isinstance(value, list) or not all(isinstance(one, item) for one in value):
            raise ValueError(f"{name}={value}")
        return value
    if issubclass(kind, IntEnum):
        return kind(value)
    if issubclass(kind, Audit | Props):
        return kind(**_values(kind, value))
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{name}={value}")
    return value
