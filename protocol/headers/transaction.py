"""Transactions: their end, and the check of one that did not end."""

from mq.protocol.codes import SINCE_5, RequestCode
from mq.protocol.headers.rpc import RpcRequestHeader
from mq.protocol.headers.schema import Header, Int, Long, field


class EndTransactionRequestHeader(RpcRequestHeader, request=RequestCode.END_TRANSACTION):
    """Commit or roll back a prepared message."""

    producer_group: str
    tran_state_table_offset: Long
    commit_log_offset: Long
    commit_or_rollback: Int
    from_transaction_check: bool = False
    msg_id: str
    transaction_id: str | None = None
    topic: str | None = field(default=None, release=SINCE_5)


class EndTransactionResponseHeader(Header, answers=RequestCode.END_TRANSACTION):
    """Nothing."""


class CheckTransactionStateRequestHeader(
    RpcRequestHeader, request=RequestCode.CHECK_TRANSACTION_STATE
):
    """The broker asks a producer what became of a transaction."""

    tran_state_table_offset: Long
    commit_log_offset: Long
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    topic: str | None = field(default=None, release=SINCE_5)


class CheckTransactionStateResponseHeader(Header, answers=RequestCode.CHECK_TRANSACTION_STATE):
    """What became of it."""

    producer_group: str
    tran_state_table_offset: Long
    commit_log_offset: Long
    commit_or_rollback: Int


class ResumeCheckHalfMessageRequestHeader(Header, request=RequestCode.RESUME_CHECK_HALF_MESSAGE):
    """Check a prepared message again that was given up."""

    msg_id: str | None = None
    topic: str | None = field(default=None, release=SINCE_5)
