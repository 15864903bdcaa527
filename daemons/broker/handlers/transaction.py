"""Transactions: how they end, and the check of one that was given up."""

import logging
from collections.abc import Callable
from functools import partial

from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.delivery.waiting import is_stored
from mq.daemons.broker.roles import check_ends_transactions
from mq.daemons.broker.store.append import Appender
from mq.daemons.broker.store.errors import StoreRefused
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.transactions.service import Transactions
from mq.daemons.broker.transactions.usual_halves import UsualHalf, UsualHalves
from mq.daemons.broker.verified_records import verified_record
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Refused
from mq.daemons.request_codes import serves
from mq.protocol import names
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.flags import SysFlag
from mq.protocol.headers.transaction import (
    ENDED,
    HALF_SIZE,
    EndTransactionRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
    more_halves,
)
from mq.protocol.message import StoredMessage, decode_record
from mq.protocol.message_id import decode_offset_id
from mq.protocol.properties import PropertyKey

log = logging.getLogger(__name__)

#: Raises Refused unless who sent a request may send to a topic.
CheckWrite = Callable[[Command, Channel, str], None]

_ENDS = (SysFlag.TRANSACTION_COMMIT, SysFlag.TRANSACTION_ROLLBACK)

# Ended by one request, in one turn of the loop, and the bytes of their messages.
_MOST_AT_ONCE = 256
_BYTES_AT_ONCE = 4 * 1024 * 1024
# The native path is offered the rest of a request behind a half that Python has ended, as one that
# is the first for its queue is. Where so many in a row are for Python, all are.
_MOST_IN_VAIN = 2


class TransactionHandlers:
    """Ends transactions as their producers say."""

    def __init__(
        self,
        settings: BrokerSettings,
        transactions: Transactions,
        store: MessageStore,
        check_write: CheckWrite | None,
    ) -> None:
        self._settings = settings
        self._transactions = transactions
        self._store = store
        self._check_write = check_write

    @serves(RequestCode.END_TRANSACTION)
    def end(self, command: Command, channel: Channel) -> None:
        """Commit a transaction or roll it back. One whose end is still unknown stays open, and the
        request is not answered.

        Source: EndTransactionProcessor, EndTransactionRequestHeader.checkFields.
        """
        check_ends_transactions(self._settings)
        header = command.read_header(EndTransactionRequestHeader)
        if header.commit_or_rollback not in (0, *_ENDS):
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"commitOrRollback {header.commit_or_rollback} is unknown: it is 8 to commit, "
                "12 to roll back, or 0",
            )
        if header.commit_or_rollback not in _ENDS:
            log.info(
                "%s does not know yet how transaction %s ends: %s",
                channel.remote,
                header.msg_id,
                command.remark or "no reason given",
            )
            return
        usual_halves = self._transactions.usual_halves()
        half, offset = self._open(header, command, channel, usual_halves)
        ends = _Ends(self._store.appender, command, channel, counted=bool(command.body))
        more = bytes(command.body[: (_MOST_AT_ONCE - 1) * HALF_SIZE])
        more_halves(command.body)  # raises for what names no halves
        command.body = b""  # up to 16 MB, which would be kept until a disk has done its work
        self._end(half, offset, header.commit_or_rollback, ends, usual_halves)
        in_vain = 0
        while more and ends.size <= _BYTES_AT_ONCE:
            ended = 0
            try:
                if in_vain < _MOST_IN_VAIN:
                    ended = self._commit_many(more, header, ends, usual_halves)
                    in_vain = 0 if ended else in_vain + 1
                if not ended:
                    ((header.commit_log_offset, header.tran_state_table_offset),) = more_halves(
                        more[:HALF_SIZE]
                    )
                    half, offset = self._open(header, command, channel, usual_halves)
                    self._end(half, offset, header.commit_or_rollback, ends, usual_halves)
                    ended = 1
            except (Refused, OSError):
                break  # those before it have ended; asked for first, it is told what is wrong
            more = more[ended * HALF_SIZE :]
        ends.all_begun()

    def _commit_many(
        self,
        halves: bytes,
        header: EndTransactionRequestHeader,
        ends: "_Ends",
        usual_halves: UsualHalves,
    ) -> int:
        """Commit natively what can be so; returns how many, of the first on."""
        natively = self._transactions.native.commits
        if header.commit_or_rollback != SysFlag.TRANSACTION_COMMIT or not natively:
            return 0
        group, most_bytes = header.producer_group, _BYTES_AT_ONCE - ends.size
        count, size = self._transactions.commit_many(halves, group, usual_halves, most_bytes)
        if count:
            ends.begun(size, count)
        return count

    def _open(
        self,
        header: EndTransactionRequestHeader,
        command: Command,
        channel: Channel,
        usual_halves: UsualHalves,
    ) -> tuple[UsualHalf | StoredMessage, int]:
        """The half that a header names, and the offset by which it is to be ended. Raises Refused
        where it is not open, or not for who has sent the request."""
        half: UsualHalf | StoredMessage | None = None
        if header.commit_or_rollback == SysFlag.TRANSACTION_COMMIT:
            physical, queue_offset = header.commit_log_offset, header.tran_state_table_offset
            half = usual_halves.read(physical, queue_offset)
        if half is None or half.properties.get(PropertyKey.PRODUCER_GROUP) != header.producer_group:
            half = self._half(header)
        if self._check_write is not None:
            topic = half.properties.get(PropertyKey.REAL_TOPIC, "")
            self._check_write(command, channel, topic)
        offset = self._transactions.ledger.find(half)
        if offset is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"the transaction {header.msg_id} is not open: it has ended, or was given up "
                f"(mqadmin resumeCheckHalfMessage opens it again)",
            )
        return half, offset

    def _half(self, header: EndTransactionRequestHeader) -> StoredMessage:
        """The half that is to end. Raises Refused as checkPrepareMessage does."""
        half = self._transactions.find_half(header.commit_log_offset)
        if half is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
        if half.properties.get(PropertyKey.PRODUCER_GROUP) != header.producer_group:
            raise Refused(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        if half.queue_offset != header.tran_state_table_offset:
            raise Refused(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
        return half

    def _end(
        self,
        half: UsualHalf | StoredMessage,
        offset: int,
        how: int,
        ends: "_Ends",
        usual_halves: UsualHalves,
    ) -> None:
        transactions = self._transactions
        if not transactions.ledger.may_end(offset):
            raise Refused(ResponseCode.SYSTEM_ERROR, "the transaction is just being ended")

        size = half.size if isinstance(half, UsualHalf) else half.store_size
        try:
            if isinstance(half, UsualHalf):
                transactions.commit_usual(half, usual_halves, offset)
            elif how == SysFlag.TRANSACTION_COMMIT:
                transactions.commit(half, offset)
            else:
                transactions.roll_back(offset)
        except StoreRefused as refusal:
            raise Refused(refusal.code, refusal.remark) from None
        ends.begun(size)

    @serves(RequestCode.RESUME_CHECK_HALF_MESSAGE)
    def resume_check(self, command: Command, channel: Channel) -> None:
        """Check a transaction again that was given up (AdminBrokerProcessor)."""
        header = command.read_header(ResumeCheckHalfMessageRequestHeader)
        half = self._given_up(header.msg_id or "")
        if (
            half.topic == names.TRANSACTION_HALF_TOPIC
            and self._transactions.ledger.find(half) is None
        ):  # Java opens it again, and lets it be committed twice
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"the transaction of message {header.msg_id} has ended; one that was given up is "
                f"named by its message in {names.TRANSACTION_CHECK_MAX_TIME_TOPIC}",
            )
        half.properties[PropertyKey.TRANSACTION_CHECK_TIMES] = "0"
        half.topic = names.TRANSACTION_HALF_TOPIC
        half.queue_id = 0

        def stored(refusal: StoreRefused | None) -> None:
            if refusal is None or is_stored(refusal):
                log.info("%s has transaction %r checked again", channel.remote, half)
                channel.reply(command)
            else:
                channel.reply(command, ResponseCode.SYSTEM_ERROR, remark=refusal.remark)

        try:
            self._transactions.put_half(half, stored)
        except StoreRefused as refusal:
            raise Refused(ResponseCode.SYSTEM_ERROR, refusal.remark) from None

    def _given_up(self, message_id: str) -> StoredMessage:
        """The message of an offset id. Raises Refused unless it was prepared."""
        try:
            found = verified_record(self._store, decode_offset_id(message_id).offset)
        except ValueError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"msgId {message_id!r}: {error}") from None
        if found is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"there is no message {message_id} here")
        try:
            message = decode_record(found[0], decompress=False, check_crc=True)
        except RemoteProtocolError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"message {message_id}: {error}") from None
        wanted = (PropertyKey.REAL_TOPIC, PropertyKey.REAL_QUEUE_ID, PropertyKey.PRODUCER_GROUP)
        if message.topic not in (
            names.TRANSACTION_CHECK_MAX_TIME_TOPIC,
            names.TRANSACTION_HALF_TOPIC,
        ) or any(name not in message.properties for name in wanted):
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"message {message_id} of {message.topic} is not of a transaction that was given up"
                f" ({names.TRANSACTION_CHECK_MAX_TIME_TOPIC} has those)",
            )
        return message


class _Ends:
    """The transactions that one request ends. It is answered when all of them are stored, and with
    SYNC_MASTER a slave has them, or has not in time: with how many, of the first on, if it has
    asked for more than one."""

    def __init__(
        self, appender: Appender, command: Command, channel: Channel, *, counted: bool
    ) -> None:
        self.size = 0  # of the messages in bytes
        self._appender = appender
        self._command = command
        self._channel = channel
        self._counted = counted
        self._begun = 0
        self._missing = 0
        self._complete = False
        self._refused: dict[int, StoreRefused] = {}  # by their place among the halves

    def begun(self, size: int, count: int = 1) -> None:
        """The ends of these were just appended."""
        self._appender.call_when_answered(partial(self._stored, self._begun))
        self.size += size
        self._begun += count
        self._missing += 1

    def all_begun(self) -> None:
        """There are no more."""
        self._complete = True
        self._answer()

    def _stored(self, place: int, refusal: StoreRefused | None) -> None:
        self._missing -= 1
        if refusal is not None and not is_stored(refusal):
            self._refused[place] = refusal
        self._answer()

    def _answer(self) -> None:
        if self._missing or not self._complete:
            return
        ended = min(self._refused, default=self._begun)
        if not ended:
            refusal = self._refused[0]
            self._channel.reply(self._command, refusal.code, remark=refusal.remark)
            return
        self._channel.reply(self._command, fields={ENDED: str(ended)} if self._counted else None)
