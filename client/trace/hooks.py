"""Hooks that write the trace entries of producers and consumers (SendMessageTraceHookImpl,
ConsumeMessageTraceHookImpl).
"""

import os

from mq.client.hooks import ConsumeContext, ConsumeHook, ConsumeOutcome, SendContext, SendHook
from mq.client.machine import clock, random_ids
from mq.client.namespace import without_namespace
from mq.client.trace.dispatcher import TraceDispatcher
from mq.client.trace.entries import (
    DEFAULT_REGION,
    EndTransaction,
    MessageType,
    Pub,
    SubAfter,
    SubBefore,
)
from mq.protocol.headers.send import Letter
from mq.protocol.message import Message, StoredMessage
from mq.protocol.message_id import UniqueIdMaker
from mq.protocol.properties import PropertyKey
from mq.protocol.properties import decode as decode_properties

_TIMED = (PropertyKey.DELAY_LEVEL, PropertyKey.TIMER_DELIVER_MS, PropertyKey.TIMER_DELAY_SEC)


class SendTrace(SendHook):
    """Traces the sends of a producer."""

    def __init__(
        self, dispatcher: TraceDispatcher, group: str, namespace: str | None = None
    ) -> None:
        self.dispatcher = dispatcher
        self._group = without_namespace(namespace, group)
        self._namespace = namespace

    def after_send(self, context: SendContext) -> None:
        """Write an entry, unless the broker has tracing switched off (traceOn)."""
        request, response, result = context.request, context.response, context.result
        if request is None or response is None or result is None:
            return
        if response.fields.get(PropertyKey.TRACE_SWITCH) == "false":
            return
        began = context.began
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
                store_host=context.address,
                body_length=len(request.body),
                cost=int((clock.time() - began) * 1000),
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
        """Trace the end of a transaction: `state` is Java's LocalTransactionState."""
        properties = message.properties
        self.dispatcher.append(
            EndTransaction(
                timestamp=int(clock.time() * 1000),
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


class ConsumeTrace(ConsumeHook):
    """Traces the messages delivered to a consumer's user."""

    def __init__(
        self, dispatcher: TraceDispatcher, group: str, host: str, namespace: str | None = None
    ) -> None:
        """`host` is this client's address, for the ids of its calls."""
        self.dispatcher = dispatcher
        self._group = without_namespace(namespace, group)
        self._next_id = UniqueIdMaker(host, os.getpid(), clock.time, random_ids.salt())

    def before_consume(self, context: ConsumeContext) -> None:
        traced = [
            message
            for message in context.messages
            if message.properties.get(PropertyKey.TRACE_SWITCH) != "false"
        ]
        if not traced:
            return
        request_id = self._next_id()
        now = int(clock.time() * 1000)
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
        context.state[self] = request_id, traced

    def after_consume(self, context: ConsumeContext) -> None:
        if self not in context.state or context.outcome is None:
            return
        request_id, traced = context.state[self]
        outcome = context.outcome
        now = int(clock.time() * 1000)
        for message in traced:
            self.dispatcher.append(
                SubAfter(
                    request_id=request_id,
                    message_id=message.message_id,
                    cost=int(context.seconds * 1000 / len(context.messages)),
                    success=outcome in (ConsumeOutcome.SUCCESS, ConsumeOutcome.TIME_OUT),
                    keys=message.properties.get(PropertyKey.KEYS, ""),
                    outcome=outcome,
                    timestamp=now,
                    group=self._group,
                )
            )
