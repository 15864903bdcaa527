"""Transactions: their end, and the check of a pending one."""

import struct
from collections.abc import Iterable, Iterator

from mq.protocol.codes import SINCE_5, RequestCode
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.headers.rpc import RpcRequestHeader
from mq.protocol.headers.schema import Header, Int, Long, field


class EndTransactionRequestHeader(RpcRequestHeader, request=RequestCode.END_TRANSACTION):
    """Commit or roll back a prepared message."""

    producer_group: str
    tran_state_table_offset: Long
    commit_log_offset: Long
    commit_or_rollback: Int
    from_transaction_check: bool = False
    msg_id: str = ""
    transaction_id: str | None = None
    topic: str | None = field(default=None, release=SINCE_5)


class EndTransactionResponseHeader(Header, answers=RequestCode.END_TRANSACTION):
    """Empty; for a request with a body how many have ended (`ENDED`)."""


#: A field of the response to a request with a body: how many half messages have ended, from the
#: first on. Later ones were not tried. Brokers without it have ended only that of the header.
ENDED = "ended"
_HALF = struct.Struct(">qq")  # position in the commit log, offset in the queue of half messages
HALF_SIZE = _HALF.size


def pack_halves(halves: Iterable[tuple[int, int]]) -> bytes:
    """Return the body of a request that ends further half messages in the same way: of each the
    position in the commit log and the offset in the queue of half messages.

    This is our extension: Java's brokers ignore the body, and end only that of the header.
    """
    return b"".join([_HALF.pack(*half) for half in halves])


def more_halves(body: bytes | bytearray | memoryview) -> Iterator[tuple[int, int]]:
    """Parse what `pack_halves` returned. Raises RemoteProtocolError."""
    if len(body) % _HALF.size:
        raise RemoteProtocolError(
            f"a body of {len(body)} bytes does not name halves, 16 bytes each"
        )
    return _HALF.iter_unpack(body)


class CheckTransactionStateRequestHeader(
    RpcRequestHeader, request=RequestCode.CHECK_TRANSACTION_STATE
):
    """The broker asks a producer for the state of a transaction."""

    tran_state_table_offset: Long
    commit_log_offset: Long
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    topic: str | None = field(default=None, release=SINCE_5)


class CheckTransactionStateResponseHeader(Header, answers=RequestCode.CHECK_TRANSACTION_STATE):
    """The state of the transaction."""

    producer_group: str
    tran_state_table_offset: Long
    commit_log_offset: Long
    commit_or_rollback: Int


class ResumeCheckHalfMessageRequestHeader(Header, request=RequestCode.RESUME_CHECK_HALF_MESSAGE):
    """Check a half message again whose checks were given up."""

    msg_id: str | None = None
    topic: str | None = field(default=None, release=SINCE_5)
