"""All JSON bodies, grouped by subject.

Import a body from the module of its subject, or from here: a subject is loaded when one of its
names is accessed, so that a command loads only the bodies that it needs.
"""

# ruff: noqa: F403  (the stars are for type checkers; at run time names are loaded one by one)

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mq.protocol.bodies.acl import *
    from mq.protocol.bodies.clients import *
    from mq.protocol.bodies.cluster import *
    from mq.protocol.bodies.common import *
    from mq.protocol.bodies.consume import *
    from mq.protocol.bodies.controller import *
    from mq.protocol.bodies.enums import *
    from mq.protocol.bodies.mapping import *
    from mq.protocol.bodies.pop import *
    from mq.protocol.bodies.queue import *
    from mq.protocol.bodies.route import *
    from mq.protocol.bodies.schema import Body as Body
    from mq.protocol.bodies.schema import MessageQueue as MessageQueue
    from mq.protocol.bodies.stats import *
    from mq.protocol.bodies.subscription import *
    from mq.protocol.bodies.topic import *

#: subject (module): its bodies. tests/protocol/bodies/test_schema.py compares it with the modules.
SUBJECTS = {
    "clients": (
        "Connection",
        "ConsumeMessageDirectlyResult",
        "ConsumeStatus",
        "ConsumerConnection",
        "ConsumerData",
        "ConsumerRunningInfo",
        "GetConsumerListByGroupResponseBody",
        "HeartbeatData",
        "LockBatchRequestBody",
        "LockBatchResponseBody",
        "PopProcessQueueInfo",
        "ProcessQueueInfo",
        "ProducerConnection",
        "ProducerData",
        "ProducerInfo",
        "ProducerTableInfo",
        "SnodeIdentity",
        "UnlockBatchRequestBody",
    ),
    "acl": (
        "AclConfig",
        "AclInfo",
        "ClusterAclVersionInfo",
        "PlainAccessConfig",
        "PolicyEntryInfo",
        "PolicyInfo",
        "UserInfo",
    ),
    "cluster": (
        "BrokerMemberGroup",
        "ClusterInfo",
        "GetBrokerMemberGroupResponseBody",
        "KVTable",
        "RegisterBrokerBody",
        "SnodeClusterInfo",
        "SnodeData",
    ),
    "common": ("DataVersion",),
    "consume": (
        "ConsumeByWho",
        "ConsumeStats",
        "ConsumeStatsList",
        "ConsumerOffsetSerializeWrapper",
        "GetConsumerStatusBody",
        "MessageQueueForC",
        "OffsetMovedEvent",
        "OffsetWrapper",
        "QueryConsumeTimeSpanBody",
        "QueryCorrectionOffsetBody",
        "QueueTimeSpan",
        "ResetOffsetBody",
        "ResetOffsetBodyForC",
        "RollbackStats",
    ),
    "controller": (
        "BrokerReplicasInfo",
        "ElectMasterResponseBody",
        "EpochEntry",
        "EpochEntryCache",
        "ReplicaIdentity",
        "ReplicasInfo",
        "RoleChangeNotifyEntry",
        "SyncStateSet",
    ),
    "enums": (
        "CMResult",
        "ConsumeFromWhere",
        "ConsumeType",
        "GroupRetryPolicyType",
        "MessageModel",
        "MessageQueueRouteState",
        "MessageRequestMode",
        "TopicFilterType",
    ),
    "mapping": (
        "LogicQueueMappingItem",
        "TopicConfigAndMappingSerializeWrapper",
        "TopicConfigAndQueueMapping",
        "TopicQueueMappingContext",
        "TopicQueueMappingDetail",
        "TopicQueueMappingInfo",
        "TopicQueueMappingOne",
        "TopicQueueMappingSerializeWrapper",
        "TopicRemappingDetailWrapper",
    ),
    "pop": (
        "BatchAck",
        "BatchAckMessageRequestBody",
        "MessageQueueAssignment",
        "MessageRequestModeSerializeWrapper",
        "QueryAssignmentRequestBody",
        "QueryAssignmentResponseBody",
        "SetMessageRequestModeRequestBody",
    ),
    "queue": (
        "CheckRocksdbCqWriteResult",
        "ConsumeQueueData",
        "QueryConsumeQueueResponseBody",
    ),
    "route": (
        "BrokerData",
        "QueueData",
        "TopicRouteData",
    ),
    "schema": (
        "Body",
        "MessageQueue",
    ),
    "stats": (
        "BrokerStatsData",
        "BrokerStatsItem",
        "HAClientRuntimeInfo",
        "HAConnectionRuntimeInfo",
        "HARuntimeInfo",
    ),
    "subscription": (
        "CheckClientRequestBody",
        "CustomizedRetryPolicy",
        "ExponentialRetryPolicy",
        "GroupForbidden",
        "GroupList",
        "GroupRetryPolicy",
        "QuerySubscriptionResponseBody",
        "SimpleSubscriptionData",
        "SubscriptionData",
        "SubscriptionGroupConfig",
        "SubscriptionGroupList",
        "SubscriptionGroupWrapper",
    ),
    "topic": (
        "CreateTopicListRequestBody",
        "TopicConfig",
        "TopicConfigSerializeWrapper",
        "TopicList",
        "TopicOffset",
        "TopicStatsTable",
    ),
}

_SUBJECT_OF = {name: subject for subject, names in SUBJECTS.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _SUBJECT_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"mq.protocol.bodies.{_SUBJECT_OF[name]}"), name)
    globals()[name] = value
    return value
