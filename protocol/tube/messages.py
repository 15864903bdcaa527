"""The messages of rpc.proto, master.proto and broker.proto, and their parser.

protoc generates their classes when mq is built (setup.py). The import takes 30 ms, so only code
that speaks TubeMQ imports it.
"""

from typing import NamedTuple, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from mq.protocol.tube.broker_pb2 import (
    AuthorizedInfo,
    CommitOffsetRequestC2B,
    CommitOffsetResponseB2C,
    GetMessageRequestC2B,
    GetMessageResponseB2C,
    HeartBeatRequestC2B,
    HeartBeatResponseB2C,
    RegisterRequestC2B,
    RegisterResponseB2C,
    SendMessageRequestP2B,
    SendMessageResponseB2P,
    TransferedMessage,
)
from mq.protocol.tube.errors import MalformedRpc
from mq.protocol.tube.master_pb2 import (
    ApprovedClientConfig,
    AuthenticateInfo,
    ClientSubRepInfo,
    CloseRequestB2M,
    CloseRequestC2M,
    CloseRequestP2M,
    CloseResponseM2B,
    CloseResponseM2C,
    CloseResponseM2P,
    ClusterConfig,
    EnableBrokerFunInfo,
    EventProto,
    GetPartMetaRequestC2M,
    GetPartMetaResponseM2C,
    HeartRequestB2M,
    HeartRequestC2M,
    HeartRequestC2MV2,
    HeartRequestP2M,
    HeartResponseM2B,
    HeartResponseM2C,
    HeartResponseM2CV2,
    HeartResponseM2P,
    MasterAuthorizedInfo,
    MasterBrokerAuthorizedInfo,
    MasterCertificateInfo,
    OpsTaskInfo,
    RegisterRequestB2M,
    RegisterRequestC2M,
    RegisterRequestC2MV2,
    RegisterRequestP2M,
    RegisterResponseM2B,
    RegisterResponseM2C,
    RegisterResponseM2CV2,
    RegisterResponseM2P,
)
from mq.protocol.tube.rpc_pb2 import (
    RequestBody,
    RequestHeader,
    ResponseHeader,
    RpcConnHeader,
    RspExceptionBody,
    RspResponseBody,
)

__all__ = [
    "ApprovedClientConfig",
    "AuthenticateInfo",
    "AuthorizedInfo",
    "ClientSubRepInfo",
    "CloseRequestB2M",
    "CloseRequestC2M",
    "CloseRequestP2M",
    "CloseResponseM2B",
    "CloseResponseM2C",
    "CloseResponseM2P",
    "ClusterConfig",
    "CommitOffsetRequestC2B",
    "CommitOffsetResponseB2C",
    "EnableBrokerFunInfo",
    "EventProto",
    "GetMessageRequestC2B",
    "GetMessageResponseB2C",
    "GetPartMetaRequestC2M",
    "GetPartMetaResponseM2C",
    "HeartBeatRequestC2B",
    "HeartBeatResponseB2C",
    "HeartRequestB2M",
    "HeartRequestC2M",
    "HeartRequestC2MV2",
    "HeartRequestP2M",
    "HeartResponseM2B",
    "HeartResponseM2C",
    "HeartResponseM2CV2",
    "HeartResponseM2P",
    "MasterAuthorizedInfo",
    "MasterBrokerAuthorizedInfo",
    "MasterCertificateInfo",
    "OpsTaskInfo",
    "RegisterRequestB2M",
    "RegisterRequestC2B",
    "RegisterRequestC2M",
    "RegisterRequestC2MV2",
    "RegisterRequestP2M",
    "RegisterResponseB2C",
    "RegisterResponseM2B",
    "RegisterResponseM2C",
    "RegisterResponseM2CV2",
    "RegisterResponseM2P",
    "RequestBody",
    "RequestHeader",
    "ResponseHeader",
    "RpcConnHeader",
    "RspExceptionBody",
    "RspResponseBody",
    "SendMessageRequestP2B",
    "SendMessageResponseB2P",
    "TransferedMessage",
    "parse",
]

M = TypeVar("M", bound=Message)


def parse(kind: type[M], data: bytes) -> M:
    """Parse a message of this kind.

    The result has all required fields, and text is str: protobuf itself returns bytes for invalid
    UTF-8. Raises MalformedRpc for a malformed message.
    """
    try:
        message = kind.FromString(data)
    except DecodeError as error:
        raise MalformedRpc(f"no {kind.DESCRIPTOR.name}: {error}") from None
    if not message.IsInitialized():
        raise MalformedRpc(f"a {kind.DESCRIPTOR.name} without all of its required fields")
    if not data.isascii():
        _check_text(kind, message)
    return message


def _check_text(kind: type[Message], message: Message) -> None:
    fields = _FIELDS.get(kind.DESCRIPTOR.name)
    if fields is None:
        fields = _FIELDS[kind.DESCRIPTOR.name] = _fields(kind)
    texts, lists, nested = fields
    for name in texts:
        if type(getattr(message, name)) is not str:
            raise MalformedRpc(f"{kind.DESCRIPTOR.name}.{name} is not text in UTF-8")
    for name in lists:
        if any(type(text) is not str for text in getattr(message, name)):
            raise MalformedRpc(f"{kind.DESCRIPTOR.name}.{name} is not text in UTF-8")
    for name, part in nested:
        if message.HasField(name):
            _check_text(part, getattr(message, name))


class _Fields(NamedTuple):
    texts: list[str]
    lists: list[str]
    nested: list[tuple[str, type[Message]]]


def _fields(kind: type[Message]) -> _Fields:
    """Return which fields of a message are text, lists of text, and messages with text.

    No list of messages (TransferedMessage) has text; test_messages.py checks this.
    """
    empty = kind()
    values = [
        (field.name, getattr(empty, field.name), field.type) for field in kind.DESCRIPTOR.fields
    ]
    texts = [name for name, value, _ in values if isinstance(value, str)]
    lists = [
        name
        for name, value, type_ in values
        if type_ == FieldDescriptor.TYPE_STRING and not isinstance(value, str)
    ]
    nested = [(name, type(value)) for name, value, _ in values if isinstance(value, Message)]
    return _Fields(texts, lists, nested)


_FIELDS: dict[str, _Fields] = {}
