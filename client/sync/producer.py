"""Blocking producers."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, Unpack, cast

from mq.client.options import ClientOptions
from mq.client.producer import producer, transactions
from mq.client.producer.options import ProducerKeywords, ProducerOptions
from mq.client.producer.transactions import TransactionCheck, TransactionResult, TransactionState
from mq.client.sync.session import Blocking, Session, own_options, waiting
from mq.client.transport.session import Session as AsyncSession
from mq.protocol.bodies import MessageQueue
from mq.protocol.message import Message

P = TypeVar("P", bound=producer.Producer)

#: The work of a transaction, given the stored message; returns the transaction's result.
Execute = Callable[[Message], TransactionState]
#: Returns a transaction's result, according to what the work has stored.
Check = Callable[[TransactionCheck], TransactionState]


class _Sends(Blocking[P]):
    """The common methods of both producers."""

    send = waiting(producer.Producer.send)
    send_batch = waiting(producer.Producer.send_batch)
    send_oneway = waiting(producer.Producer.send_oneway)
    request = waiting(producer.Producer.request)
    reply = waiting(producer.Producer.reply)
    recall = waiting(producer.Producer.recall)
    prepare = waiting(producer.Producer.prepare)


class Producer(_Sends[producer.Producer]):
    """Sends messages; several threads may use it concurrently. A context manager.

        with Producer("127.0.0.1:9876", "orders") as producer:
            result = producer.send(Message("Orders", b"...", keys=["42"]))

    Its methods are those of `mq.client.Producer`, and block until the result is available.
    """

    def __init__(
        self,
        session: Session | str | Sequence[str],
        group: str = "mq_producer",
        options: ProducerOptions | None = None,
        *,
        client: ClientOptions | None = None,
        **keywords: Unpack[ProducerKeywords],
    ) -> None:
        """`session` is the addresses of name servers, or a blocking session to share.

        Options are those of `mq.client.Producer`; `open` raises the errors about them.
        """
        given = cast("dict[str, Any]", keywords)
        client = own_options(session, client, given)

        def make(shared: AsyncSession) -> producer.Producer:
            return producer.Producer(shared, group, options, client=client, **keywords)

        super().__init__(session, make, client)


class TransactionProducer(_Sends[transactions.TransactionProducer]):
    """Sends messages in transactions, and plain ones. A context manager.

        def check(question: TransactionCheck) -> TransactionState:
            paid = database.is_paid(question.message.keys[0])
            return TransactionState.COMMIT if paid else TransactionState.UNKNOWN

        with TransactionProducer("127.0.0.1:9876", "payments", check) as producer:
            producer.send_in_transaction(Message("Paid", b"...", keys=["42"]), pay)

    `check` and the work are plain functions, which are called in threads.
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
        """See `Producer`."""
        given = cast("dict[str, Any]", keywords)
        client = own_options(session, client, given)

        async def checked(question: TransactionCheck) -> TransactionState:
            return await asyncio.to_thread(check, question)

        def make(shared: AsyncSession) -> transactions.TransactionProducer:
            return transactions.TransactionProducer(
                shared, group, checked, options, client=client, **keywords
            )

        super().__init__(session, make, client)

    def send_in_transaction(
        self,
        message: Message,
        execute: Execute,
        queue: MessageQueue | None = None,
        *,
        timeout: float | None = None,
    ) -> TransactionResult:
        """Send a message that stays hidden, do the work, then commit the message or roll it back.

        See `mq.client.TransactionProducer.send_in_transaction`.
        """

        async def executed(prepared: Message) -> TransactionState:
            return await asyncio.to_thread(execute, prepared)

        sent = self._client.send_in_transaction(message, executed, queue, timeout=timeout)
        return self._run(sent)
