"""What producers and consumers put into a trace (SendMessageTraceHookImpl, ConsumeMessage…)."""

import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mq.client.namespace import without_namespace
from mq.client.session import Session
from mq.client.trace.dispatcher import TraceDispatcher
from mq.client.trace.records import (
    DEFAULT_REGION,
    ConsumeOutcome,
    EndTransaction,
    MessageType,
    Pub,
    SubAfter,
    SubBefore,
)
from mq.protocol.command import Command
from mq.protocol.headers.send import Letter
from mq.protocol.message import Message, StoredMessage
from mq.protocol.message_id import UniqueIdMaker
from mq.protocol.names import TRACE_TOPIC
from mq.protocol.properties import PropertyKey
from mq.protocol.properties import decode as decode_properties

if TYPE_CHECKING:
    from mq.client.producer import SendResult

__all__ = ["ConsumeOutcome", "ConsumeTrace", "SendTrace", "make_send_trace", "make_trace"]

_TIMED = (PropertyKey.DELAY_LEVEL, PropertyKey.TIMER_DELIVER_MS, PropertyKey.TIMER_DELAY_SEC)


class SendTrace:
    """Traces what a producer sends."""

    def __init__(
        self, dispatcher: TraceDispatcher, group: str, namespace: str | None = None
    ) -> None:
        self.dispatcher = dispatcher
        self._group = without_namespace(namespace, group)
        self._namespace = namespace

    def sent(
        self,
        request: Command,
        response: Command,
        address: str,
        began: float,
        result: "SendResult",
    ) -> None:
        """A broker at `address` has answered; `began` is in seconds since 1970.

        Nothing is traced where the broker has switched that off (traceOn).
        """
        if response.fields.get(PropertyKey.TRACE_SWITCH) == "false":
            return
        properties = decode_properties(request.fields[Letter.PROPERTIES])
        if PropertyKey.TRANSACTION_PREPARED in properties:
            kind = MessageType.HALF
        elif any(name in properties for name in _TIMED):
            kind = MessageType.DELAY
        else:
            kind = MessageType.NORMAL
        self.dispatcher.append(
            Pub(
                timestamp=int(began * 1000),
                group=self._group,
                topic=without_namespace(self._namespace, request.fields[Letter.TOPIC]),
                message_id=result.message_id,
                tags=properties.get(PropertyKey.TAGS, ""),
                keys=properties.get(PropertyKey.KEYS, ""),
                store_host=address,
                body_length=len(request.body),
                cost=int((time.time() - began) * 1000),
                message_type=kind,
                offset_message_id=result.offset_message_id,
                success=result.status == "SEND_OK",
                region=response.fields.get(PropertyKey.MSG_REGION, DEFAULT_REGION),
            )
        )

    def ended(
        self,
        message: Message | StoredMessage,
        message_id: str,
        transaction_id: str,
        state: str,
        address: str,
        *,
        from_check: bool,
    ) -> None:
        """A broker is told how a transaction ends: `state` is Java's LocalTransactionState."""
        properties = message.properties
        self.dispatcher.append(
            EndTransaction(
                timestamp=int(time.time() * 1000),
                group=self._group,
                topic=without_namespace(self._namespace, message.topic),
                message_id=message_id,
                transaction_id=transaction_id,
                state=state,
                from_check=from_check,
                tags=message.tags or "",
                keys=" ".join(message.keys),
                store_host=address,
                region=properties.get(PropertyKey.MSG_REGION, DEFAULT_REGION),
            )
        )


class ConsumeTrace:
    """Traces what a listener gets."""

    def __init__(
        self, dispatcher: TraceDispatcher, group: str, host: str, namespace: str | None = None
    ) -> None:
        """`host` is this client's address, for the ids of its calls."""
        self.dispatcher = dispatcher
        self._group = without_namespace(namespace, group)
        self._next_id = UniqueIdMaker(host, os.getpid(), time.time)

    def before(self, messages: Sequence[StoredMessage]) -> "Traced | None":
        """The listener is about to get these. None when none of them shall be traced."""
        traced = [
            message
            for message in messages
            if message.properties.get(PropertyKey.TRACE_SWITCH) != "false"
        ]
        if not traced:
            return None
        request_id = self._next_id()
        now = int(time.time() * 1000)
        for message in traced:
            properties = message.properties
            self.dispatcher.append(
                SubBefore(
                    timestamp=now,
                    group=self._group,
                    request_id=request_id,
                    message_id=message.message_id,
                    retry_times=message.reconsume_times,
                    keys=properties.get(PropertyKey.KEYS, ""),
                    region=properties.get(PropertyKey.MSG_REGION, DEFAULT_REGION),
                )
            )
        return Traced(self.dispatcher, self._group, request_id, traced, len(messages))


def make_trace(
    session: Session, group: str, topic: bool | str, namespace: str | None
) -> ConsumeTrace:
    """The trace of a consumer, to the trace topic or to that of the name given."""
    host = session.client_id.partition("@")[0]
    dispatcher = TraceDispatcher(
        session, group, "CONSUME", topic if isinstance(topic, str) else TRACE_TOPIC
    )
    return ConsumeTrace(dispatcher, group, host, namespace)


def make_send_trace(
    session: Session, group: str, topic: bool | str, namespace: str | None
) -> SendTrace:
    """The trace of a producer, to the trace topic or to that of the name given."""
    dispatcher = TraceDispatcher(
        session, group, "PRODUCE", topic if isinstance(topic, str) else TRACE_TOPIC
    )
    return SendTrace(dispatcher, group, namespace)


class Traced:
    """A call of a listener whose beginning is in the trace."""

    __slots__ = ("_count", "_dispatcher", "_group", "_messages", "_request_id")

    def __init__(
        self,
        dispatcher: TraceDispatcher,
        group: str,
        request_id: str,
        messages: list[StoredMessage],
        count: int,
    ) -> None:
        self._dispatcher = dispatcher
        self._group = group
        self._request_id = request_id
        self._messages = messages
        self._count = count  # of the call, those that are not traced among them

    def after(self, outcome: ConsumeOutcome, seconds: float) -> None:
        """The listener has ended after `seconds`."""
        now = int(time.time() * 1000)
        for message in self._messages:
            self._dispatcher.append(
                SubAfter(
                    request_id=self._request_id,
                    message_id=message.message_id,
                    cost=int(seconds * 1000 / self._count),
                    success=outcome in (ConsumeOutcome.SUCCESS, ConsumeOutcome.TIME_OUT),
                    keys=message.properties.get(PropertyKey.KEYS, ""),
                    outcome=outcome,
                    timestamp=now,
                    group=self._group,
                )
            )
