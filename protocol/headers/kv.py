"""The key-value settings of name servers."""

from mq.protocol.codes import RequestCode
from mq.protocol.headers.schema import Header


class PutKVConfigRequestHeader(Header, request=RequestCode.PUT_KV_CONFIG):
    """Set a value."""

    namespace: str
    key: str
    value: str


class GetKVConfigRequestHeader(Header, request=RequestCode.GET_KV_CONFIG):
    """Get a value."""

    namespace: str
    key: str


class GetKVConfigResponseHeader(Header, answers=RequestCode.GET_KV_CONFIG):
    """The value."""

    value: str | None = None


class DeleteKVConfigRequestHeader(Header, request=RequestCode.DELETE_KV_CONFIG):
    """Delete a value."""

    namespace: str
    key: str


class GetKVListByNamespaceRequestHeader(Header, request=RequestCode.GET_KVLIST_BY_NAMESPACE):
    """All values of a namespace."""

    namespace: str
