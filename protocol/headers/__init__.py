"""All headers of requests and responses, grouped by subject.

Import a header from the module of its subject, or from here: a subject is loaded when one of its
names is accessed, so that a command loads only the headers that it needs.
"""

# ruff: noqa: F403  (the stars are for type checkers; at run time names are loaded one by one)

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mq.protocol.headers.schema import Header as Header

    HEADERS: dict[int, type[Header]]  # of requests
    RESPONSE_HEADERS: dict[int, type[Header]]  # by request code
    SNODE_HEADERS: dict[int, type[Header]]  # of requests in the dialect of snodes
    from mq.protocol.headers.acl import *
    from mq.protocol.headers.broker import *
    from mq.protocol.headers.controller import *
    from mq.protocol.headers.filtersrv import *
    from mq.protocol.headers.group import *
    from mq.protocol.headers.kv import *
    from mq.protocol.headers.offset import *
    from mq.protocol.headers.pop import *
    from mq.protocol.headers.pull import *
    from mq.protocol.headers.query import *
    from mq.protocol.headers.route import *
    from mq.protocol.headers.rpc import *
    from mq.protocol.headers.send import *
    from mq.protocol.headers.snode import *
    from mq.protocol.headers.topic import *
    from mq.protocol.headers.transaction import *

#: subject (module): its headers. tests/protocol/headers/test_schema.py compares it with the
#: modules.
SUBJECTS = {
    "schema": ("Header",),
    "acl": (
        "CreateAccessConfigRequestHeader",
        "CreateAclRequestHeader",
        "CreateUserRequestHeader",
        "DeleteAccessConfigRequestHeader",
        "DeleteAclRequestHeader",
        "DeleteUserRequestHeader",
        "GetAclRequestHeader",
        "GetBrokerAclConfigResponseHeader",
        "GetUserRequestHeader",
        "ListAclsRequestHeader",
        "ListUsersRequestHeader",
        "UpdateAclRequestHeader",
        "UpdateGlobalWhiteAddrsConfigRequestHeader",
        "UpdateUserRequestHeader",
    ),
    "broker": (
        "AddBrokerRequestHeader",
        "AddWritePermOfBrokerRequestHeader",
        "AddWritePermOfBrokerResponseHeader",
        "CheckRocksdbCqWriteProgressRequestHeader",
        "ExchangeHAInfoRequestHeader",
        "ExchangeHAInfoResponseHeader",
        "ExportRocksDBConfigToJsonRequestHeader",
        "GetBrokerConfigResponseHeader",
        "GetBrokerMemberGroupRequestHeader",
        "NotifyMinBrokerIdChangeRequestHeader",
        "QueryDataVersionRequestHeader",
        "QueryDataVersionResponseHeader",
        "RegisterBrokerRequestHeader",
        "RegisterBrokerResponseHeader",
        "RemoveBrokerRequestHeader",
        "ResetMasterFlushOffsetHeader",
        "UnRegisterBrokerRequestHeader",
        "ViewBrokerStatsDataRequestHeader",
        "WipeWritePermOfBrokerRequestHeader",
        "WipeWritePermOfBrokerResponseHeader",
    ),
    "controller": (
        "AlterSyncStateSetRequestHeader",
        "AlterSyncStateSetResponseHeader",
        "ApplyBrokerIdRequestHeader",
        "ApplyBrokerIdResponseHeader",
        "BrokerHeartbeatRequestHeader",
        "CleanControllerBrokerDataRequestHeader",
        "ElectMasterRequestHeader",
        "ElectMasterResponseHeader",
        "GetMetaDataResponseHeader",
        "GetNextBrokerIdRequestHeader",
        "GetNextBrokerIdResponseHeader",
        "GetReplicaInfoRequestHeader",
        "GetReplicaInfoResponseHeader",
        "NotifyBrokerRoleChangedRequestHeader",
        "RegisterBrokerToControllerRequestHeader",
        "RegisterBrokerToControllerResponseHeader",
    ),
    "filtersrv": (
        "RegisterFilterServerRequestHeader",
        "RegisterFilterServerResponseHeader",
        "RegisterMessageFilterClassRequestHeader",
    ),
    "group": (
        "ConsumeMessageDirectlyResultRequestHeader",
        "DeleteSubscriptionGroupRequestHeader",
        "GetAllProducerInfoRequestHeader",
        "GetAllSubscriptionGroupRequestHeader",
        "GetAllSubscriptionGroupResponseHeader",
        "GetConsumeStatsInBrokerHeader",
        "GetConsumeStatsRequestHeader",
        "GetConsumerConnectionListRequestHeader",
        "GetConsumerListByGroupRequestHeader",
        "GetConsumerListByGroupResponseHeader",
        "GetConsumerRunningInfoRequestHeader",
        "GetConsumerStatusRequestHeader",
        "GetProducerConnectionListRequestHeader",
        "GetSubscriptionGroupConfigRequestHeader",
        "HeartbeatRequestHeader",
        "LockBatchMqRequestHeader",
        "NotifyConsumerIdsChangedRequestHeader",
        "QuerySubscriptionByConsumerRequestHeader",
        "QueryTopicsByConsumerRequestHeader",
        "UnlockBatchMqRequestHeader",
        "UnregisterClientRequestHeader",
        "UnregisterClientResponseHeader",
        "UpdateGroupForbiddenRequestHeader",
    ),
    "kv": (
        "DeleteKVConfigRequestHeader",
        "GetKVConfigRequestHeader",
        "GetKVConfigResponseHeader",
        "GetKVListByNamespaceRequestHeader",
        "PutKVConfigRequestHeader",
    ),
    "offset": (
        "CloneGroupOffsetRequestHeader",
        "GetEarliestMsgStoretimeRequestHeader",
        "GetEarliestMsgStoretimeResponseHeader",
        "GetMaxOffsetRequestHeader",
        "GetMaxOffsetResponseHeader",
        "GetMinOffsetRequestHeader",
        "GetMinOffsetResponseHeader",
        "QueryConsumerOffsetRequestHeader",
        "QueryConsumerOffsetResponseHeader",
        "QueryCorrectionOffsetHeader",
        "ResetOffsetRequestHeader",
        "SearchOffsetRequestHeader",
        "SearchOffsetResponseHeader",
        "UpdateConsumerOffsetRequestHeader",
        "UpdateConsumerOffsetResponseHeader",
    ),
    "pop": (
        "AckMessageRequestHeader",
        "ChangeInvisibleTimeRequestHeader",
        "ChangeInvisibleTimeResponseHeader",
        "InitConsumerOffsetRequestHeader",
        "NotificationRequestHeader",
        "NotificationResponseHeader",
        "PeekMessageRequestHeader",
        "PollingInfoRequestHeader",
        "PollingInfoResponseHeader",
        "PopMessageRequestHeader",
        "PopMessageResponseHeader",
        "StatisticsMessagesRequestHeader",
    ),
    "pull": (
        "PullMessageRequestHeader",
        "PullMessageResponseHeader",
    ),
    "query": (
        "QueryConsumeQueueRequestHeader",
        "QueryConsumeTimeSpanRequestHeader",
        "QueryMessageRequestHeader",
        "QueryMessageResponseHeader",
        "ViewMessageRequestHeader",
        "ViewMessageResponseHeader",
    ),
    "route": ("GetRouteInfoRequestHeader",),
    "rpc": (
        "RpcRequestHeader",
        "TopicQueueRequestHeader",
        "TopicRequestHeader",
    ),
    "send": (
        "ConsumerSendMsgBackRequestHeader",
        "RecallMessageRequestHeader",
        "RecallMessageResponseHeader",
        "ReplyMessageRequestHeader",
        "SendMessageRequestHeader",
        "SendMessageRequestHeaderV2",
        "SendMessageResponseHeader",
    ),
    "snode": (
        "CreateRetryTopicRequestHeader",
        "GetSnodeInfoRequestHeader",
        "PushMessageHeader",
        "RegisterSnodeRequestHeader",
    ),
    "topic": (
        "CreateTopicListRequestHeader",
        "CreateTopicRequestHeader",
        "DeleteTopicFromNamesrvRequestHeader",
        "DeleteTopicRequestHeader",
        "GetAllTopicConfigRequestHeader",
        "GetAllTopicConfigResponseHeader",
        "GetTopicConfigRequestHeader",
        "GetTopicStatsInfoRequestHeader",
        "GetTopicsByClusterRequestHeader",
        "QueryTopicConsumeByWhoRequestHeader",
        "RegisterOrderTopicRequestHeader",
        "RegisterTopicRequestHeader",
    ),
    "transaction": (
        "CheckTransactionStateRequestHeader",
        "CheckTransactionStateResponseHeader",
        "EndTransactionRequestHeader",
        "EndTransactionResponseHeader",
        "ResumeCheckHalfMessageRequestHeader",
    ),
}

_SUBJECT_OF = {name: subject for subject, names in SUBJECTS.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "HEADERS":
        value: Any = {c: h for h in _all() for c in h.REQUESTS if not _is_of_snodes(c)}
    elif name == "SNODE_HEADERS":
        value = {c: h for h in _all() for c in h.REQUESTS if _is_of_snodes(c)}
    elif name == "RESPONSE_HEADERS":
        value = {c: h for h in _all() for c in h.ANSWERS if not _is_of_snodes(c)}
    elif name in _SUBJECT_OF:
        value = getattr(import_module(f"mq.protocol.headers.{_SUBJECT_OF[name]}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def _all() -> "list[type[Header]]":
    """Return every header. Loads every subject."""
    return [__getattr__(name) for name in _SUBJECT_OF]


def _is_of_snodes(code: int) -> bool:
    """Whether a code is of the snode dialect, in which some numbers have other meanings."""
    from mq.protocol.codes import SnodeCode

    return isinstance(code, SnodeCode)
