"""Transactions: commit, rollback, and the renewed check of one that was given up."""

import logging
from collections.abc import Callable
from functools import partial

from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.delivery.waiting import is_stored
from mq.daemons.broker.roles import check_ends_transactions
from mq.daemons.broker.store import Appender, MessageStore, StoreRefused
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

# Raises Refused unless the sender of a request may send to a topic.
CheckWrite = Callable[[Command, Channel, str], None]

_ENDS = (SysFlag.TRANSACTION_COMMIT, SysFlag.TRANSACTION_ROLLBACK)

# Limits of one request in one turn of the event loop: transactions, and bytes of their messages.
_MOST_AT_ONCE = 256
_BYTES_AT_ONCE = 4 * 1024 * 1024
# After Python has ended a half message, as it does for the first one of each queue, the native path
# is offered the rest of the request. When it has refused so many in a row, Python ends the rest.
_MOST_REFUSED = 2


class TransactionHandlers:
    """Ends transactions at the request of their producers."""

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
        """Commit or roll back a transaction. One whose outcome is still unknown stays open, and the
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
        more_halves(command.body)  # raises if the body does not consist of half message references
        command.body = b""  # up to 16 MB, which would be kept until the disk has finished
        self._end(half, offset, header.commit_or_rollback, ends, usual_halves)
        refused = 0
        while more and ends.size <= _BYTES_AT_ONCE:
            ended = 0
            try:
                if refused < _MOST_REFUSED:
                    ended = self._commit_many(more, header, ends, usual_halves)
                    refused = 0 if ended else refused + 1
                if not ended:
                    ((header.commit_log_offset, header.tran_state_table_offset),) = more_halves(
                        more[:HALF_SIZE]
                    )
                    half, offset = self._open(header, command, channel, usual_halves)
                    self._end(half, offset, header.commit_or_rollback, ends, usual_halves)
                    ended = 1
            except (Refused, OSError):
                # the ones before it have ended; sent first in a request, it is answered with the
                # error
                break
            more = more[ended * HALF_SIZE :]
        ends.all_begun()

    def _commit_many(
        self,
        halves: bytes,
        header: EndTransactionRequestHeader,
        ends: "_Ends",
        usual_halves: UsualHalves,
    ) -> int:
        """Commit transactions natively, starting with the first; returns how many."""
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
        """Return the half message that a header names, and the offset by which it is ended.

        Raises Refused if it is not open, or if the sender of the request may not end it.
        """
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
                f"(mqadmin resumeCheckHalfMessage reopens it)",
            )
        return half, offset

    def _half(self, header: EndTransactionRequestHeader) -> StoredMessage:
        """The half message to end. Raises Refused like checkPrepareMessage."""
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
        """Check a given-up transaction again (AdminBrokerProcessor)."""
        header = command.read_header(ResumeCheckHalfMessageRequestHeader)
        half = self._given_up(header.msg_id or "")
        if (
            half.topic == names.TRANSACTION_HALF_TOPIC
            and self._transactions.ledger.find(half) is None
        ):  # Java reopens it, so that it can be committed twice
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
        """The message of an offset id. Raises Refused unless it is a half message."""
        try:
            found = verified_record(self._store, decode_offset_id(message_id).offset)
        except ValueError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"msgId {message_id!r}: {error}") from None
        if found is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"message {message_id} does not exist here")
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
    """The transactions that one request ends.

    The request is answered when all of them are stored and, with SYNC_MASTER, are on a slave or the
    wait for it has timed out. If the request named more than one, the reply has the number of
    consecutive ones, from the first, that have ended.
    """

    def __init__(
        self, appender: Appender, command: Command, channel: Channel, *, counted: bool
    ) -> None:
        self.size = 0  # bytes of the messages
        self._appender = appender
        self._command = command
        self._channel = channel
        self._counted = counted
        self._begun = 0
        self._missing = 0
        self._complete = False
        self._refused: dict[int, StoreRefused] = {}  # by their position among the half messages

    def begun(self, size: int, count: int = 1) -> None:
        """Note transactions whose ends were just appended."""
        self._appender.call_when_answered(partial(self._stored, self._begun))
        self.size += size
        self._begun += count
        self._missing += 1

    def all_begun(self) -> None:
        """Note that there are no more."""
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
