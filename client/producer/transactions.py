"""Transactional messages: consumers see a message only after its producer has committed it.

The broker holds the message back while the producer does its own work (writes an order to a
database, say). Then the producer commits the message or rolls it back. If the broker receives
neither, because the producer died or the result was unknown, it asks any producer of the group.
"""

import asyncio
import copy
import logging
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import NamedTuple, Unpack
from weakref import WeakKeyDictionary

from mq.client.errors import ClientError, MQError
from mq.client.namespace import with_namespace, without_namespace
from mq.client.options import ClientOptions
from mq.client.producer.options import ProducerKeywords, ProducerOptions
from mq.client.producer.producer import Producer
from mq.client.send_result import SendResult, SendStatus
from mq.client.transport.session import Session
from mq.client.transport.tasks import is_meant
from mq.protocol.bodies import MessageQueue
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.flags import SysFlag
from mq.protocol.headers.transaction import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)
from mq.protocol.message import Message, StoredMessage, decode_record
from mq.protocol.message_id import decode_offset_id
from mq.protocol.names import SELF_TEST_TOPIC
from mq.protocol.properties import PropertyKey

log = logging.getLogger(__name__)

_SEEK_SECONDS = 3.0  # between two attempts to find the brokers


class TransactionState(Enum):
    """The result of a transaction."""

    COMMIT = SysFlag.TRANSACTION_COMMIT
    ROLLBACK = SysFlag.TRANSACTION_ROLLBACK
    UNKNOWN = SysFlag.TRANSACTION_NOT  # not known yet: the broker asks again


_JAVA_NAMES = {  # of LocalTransactionState, as written in traces
    TransactionState.COMMIT: "COMMIT_MESSAGE",
    TransactionState.ROLLBACK: "ROLLBACK_MESSAGE",
    TransactionState.UNKNOWN: "UNKNOW",
}


class TransactionResult(NamedTuple):
    """The result of sending a message in a transaction."""

    state: TransactionState
    confirmed: bool  # whether the broker confirmed the end; otherwise it asks later
    transaction_id: str
    sent: SendResult  # of the half message: its offset is in the half topic


class TransactionCheck(NamedTuple):
    """A broker's question about the result of a transaction."""

    message: StoredMessage  # as sent, with its topic, properties and body
    transaction_id: str
    times: int  # how often the broker has asked, including this time
    address: str  # of the broker


#: Does the producer's own work, given the message with its `transaction_id`; returns the result.
Execute = Callable[[Message], Awaitable[TransactionState]]

#: Returns the result of a transaction.
Check = Callable[[TransactionCheck], Awaitable[TransactionState]]


class TransactionProducer(Producer):
    """Sends messages in transactions, and plain ones like any `Producer`. An async context manager.

        async def check(question: TransactionCheck) -> TransactionState:
            paid = await database.is_paid(question.message.keys[0])
            return TransactionState.COMMIT if paid else TransactionState.UNKNOWN

        async def pay(message: Message) -> TransactionState:
            await database.pay(message.keys[0])
            return TransactionState.COMMIT

        async with TransactionProducer("127.0.0.1:9876", "payments", check) as producer:
            await producer.send_in_transaction(Message("Paid", b"...", keys=["42"]), pay)

    Brokers call `check` for transactions of any producer of the group, even one that has died: it
    must derive the result from what the work itself has stored. A message is delivered twice if it
    was stored at two brokers because the first did not answer in time.
    """

    def __init__(
        self,
        session: Session | str | Sequence[str],
        group: str,
        check: Check,
        options: ProducerOptions | None = None,
        *,
        client: ClientOptions | None = None,
        **keywords: Unpack[ProducerKeywords],
    ) -> None:
        """See `Producer`. Only one producer of a group may be open on a session.

        Also raises ClientError for a session that connects to snodes, which do not forward brokers'
        questions.
        """
        super().__init__(session, group, options, client=client, **keywords)
        if self.session.options.snode:
            raise ClientError("transactions need a session to brokers: snodes do not support them")
        self._check = check
        self._seeking: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Prepare for sending and for brokers' questions. Safe to call again.

        The producer registers with all brokers that the name servers know, not only with those that
        it sends to: each may have open transactions of the group. Raises ClientError if another
        producer of the group is open on the same session.
        """
        # first: a caller cancelled while waiting must not be registered
        await self._close_once.settle()
        producers = _producers_of(self.session)
        if producers.setdefault(self.group, self) is not self:
            raise ClientError(f"the session has a transaction producer of {self.group} already")
        await super().open()
        if self._seeking is None:
            self._seeking = self.session.keep_task(self._register_everywhere())

    async def _register_everywhere(self) -> None:
        """Register with all brokers: each has SELF_TEST_TOPIC, ours and Java's.

        Java's producers register with the brokers that have TBW102, i.e. those that create topics
        automatically (MQClientInstance, DefaultMQProducerImpl.start).
        """
        while True:
            try:
                await self.session.route(SELF_TEST_TOPIC)
                await self._heartbeats.beat_new()
                return
            except MQError as error:
                log.warning("transaction producer %s is not registered at brokers yet: %s",
                            self.group, error)  # fmt: skip
            await asyncio.sleep(_SEEK_SECONDS)

    async def close(self) -> None:
        """Unregister at the brokers, and close the session if the producer owns it."""
        if self._seeking is not None:
            self._seeking.cancel()
            self._seeking = None
        producers = _producers_of(self.session)
        if producers.get(self.group) is self:
            del producers[self.group]
        await super().close()

    async def send_in_transaction(
        self,
        message: Message,
        execute: Execute,
        queue: MessageQueue | None = None,
        *,
        timeout: float | None = None,
    ) -> TransactionResult:
        """Send a message that stays hidden, do the work, then commit the message or roll it back.

        `execute` runs after the broker has stored the message. It gets a copy with the
        `transaction_id` set, and returns the transaction's result. If the message was not stored
        safely (`SendStatus` is not SEND_OK) it does not run, and the transaction is rolled back.
        Its exceptions are raised here; the result is then unknown, and `check` will be called for
        it.

        `timeout` in seconds applies to the send and to the end, not to the work. Raises what `send`
        raises, and ClientError for a message with a delay.
        """
        if message.delay_level or message.deliver_at is not None:
            raise ClientError(
                "a message in a transaction may not be delayed: brokers would lose it"
            )
        prepared = copy.copy(message)
        prepared.system = {
            **message.system,
            PropertyKey.TRANSACTION_PREPARED: "true",
            PropertyKey.PRODUCER_GROUP: self.group,
        }
        sent = await self.send(prepared, queue, timeout=timeout)
        prepared.transaction_id = sent.message_id
        state = TransactionState.ROLLBACK
        if sent.status is SendStatus.SEND_OK:
            try:
                state = await execute(prepared)
            except Exception as error:
                remark = f"execute: {error!r}"
                await self._end(prepared, sent, TransactionState.UNKNOWN, timeout, remark)
                raise
        confirmed = await self._end(prepared, sent, state, timeout)
        return TransactionResult(state, confirmed, sent.message_id, sent)

    async def _end(
        self,
        message: Message,
        sent: SendResult,
        state: TransactionState,
        timeout: float | None,
        remark: str | None = None,
    ) -> bool:
        """Report a transaction's end to the broker; returns whether the broker confirmed it."""
        header = EndTransactionRequestHeader(
            producer_group=self.group,
            tran_state_table_offset=sent.queue_offset,
            commit_log_offset=decode_offset_id(sent.offset_message_id).offset,
            commit_or_rollback=state.value,
            msg_id=sent.message_id,
            transaction_id=sent.transaction_id or sent.message_id,
            topic=sent.queue.topic,
            broker=sent.queue.broker_name,
        )
        command = Command(RequestCode.END_TRANSACTION, header.encode(), remark=remark)
        try:
            address = await self.address_of(sent.queue)
            if self.trace is not None:
                ids = (sent.message_id, header.transaction_id or "")
                self.trace.ended(message, *ids, _JAVA_NAMES[state], address, from_check=False)
            if state is TransactionState.UNKNOWN:  # the broker does not answer that
                await self.session.invoke_oneway(address, command)
                return False
            await self.session.call(address, command, self.timeout if timeout is None else timeout)
        except MQError as error:
            log.warning(
                "transaction %s: %s did not reach the broker, which will ask: %s",
                sent.message_id,
                state.name,
                error,
            )
            return False
        return True

    async def answer(self, request: Command, message: StoredMessage, address: str) -> None:
        """Answer a broker's question. Called by the session's connections."""
        header = CheckTransactionStateRequestHeader.decode(request.fields)
        transaction_id = header.transaction_id or message.message_id
        message.topic = without_namespace(self.namespace, message.topic)
        times = message.properties.get(PropertyKey.TRANSACTION_CHECK_TIMES, "")
        question = TransactionCheck(
            message, transaction_id, int(times) if times.isdecimal() else 0, address
        )
        state, remark = TransactionState.UNKNOWN, None
        try:
            state = await self._check(question)
        except BaseException as error:  # user code failed: the broker asks again
            if is_meant(error):
                raise
            log.exception("the check of transaction %s failed", transaction_id)
            remark = f"check: {error!r}"
        end = EndTransactionRequestHeader(
            producer_group=self.group,
            tran_state_table_offset=header.tran_state_table_offset,
            commit_log_offset=header.commit_log_offset,
            commit_or_rollback=state.value,
            from_transaction_check=True,
            msg_id=message.message_id,
            transaction_id=header.transaction_id,
            topic=with_namespace(self.namespace, message.topic),
            broker=header.broker,
        )
        command = Command(RequestCode.END_TRANSACTION, end.encode(), remark=remark)
        if self.trace is not None:
            ids = (message.message_id, transaction_id)
            self.trace.ended(message, *ids, _JAVA_NAMES[state], address, from_check=True)
        await self.session.invoke_oneway(address, command)


_PRODUCERS: "WeakKeyDictionary[Session, dict[str, TransactionProducer]]" = WeakKeyDictionary()


def _producers_of(session: Session) -> dict[str, TransactionProducer]:
    """Return the transaction producers of a session by group, for brokers' questions."""
    producers = _PRODUCERS.get(session)
    if producers is None:
        producers = _PRODUCERS[session] = {}
        by_group = producers

        async def checked(request: Command, address: str) -> None:
            message = decode_record(request.body)
            producer = by_group.get(message.properties.get(PropertyKey.PRODUCER_GROUP, ""))
            if producer is None:
                log.warning("a broker asked about a transaction of an unknown group: %r", message)
                return
            try:
                await producer.answer(request, message, address)
            except MQError as error:
                log.warning("the end of a transaction did not reach %s: %s", address, error)

        session.on_request(RequestCode.CHECK_TRANSACTION_STATE, checked)
    return producers
