"""Consumers that pop: they acknowledge, or do not, or hide for longer."""

import asyncio
from collections.abc import Callable
from typing import Any

from mq.client import Session
from mq.client.errors import MQError
from mq.protocol.codes import ResponseCode
from mq.protocol.command import Command
from mq.protocol.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from mq.protocol.headers.schema import Header
from mq.protocol.message import StoredMessage, decode_undamaged
from tests.simulation.model import Pop, Pops
from tests.simulation.model.content import damage, number_of
from tests.simulation.workloads.context import Context, Workload

_POLL = 4000  # ms
_SEEN = 0.5  # s
_INVISIBLE = (1500, 4000, 10_000)  # ms


def pop(pops: Pops) -> Workload:
    """Pop from each broker in turn, until the end."""

    async def run(context: Context) -> None:
        async with Session(context.name_servers, context.client("popper")) as session:
            await asyncio.gather(
                *(
                    _Popper(context, session, pops, broker.name).run()
                    for broker in context.cluster.brokers
                )
            )

    return run


class _Popper:
    """Pops from one broker."""

    def __init__(self, context: Context, session: Session, pops: Pops, broker: str) -> None:
        self._context, self._session, self._pops = context, session, pops
        self._broker = broker

    @property
    def _address(self) -> str:
        return self._context.address(self._broker)

    async def run(self) -> None:
        while True:
            try:
                await self._round()
            except MQError as error:
                self._context.tell(f"pop: {error!r}")
                await asyncio.sleep(0.5)

    async def _round(self) -> None:
        context = self._context
        header = PopMessageRequestHeader(
            consumer_group=self._pops.group,
            topic=self._pops.topic,
            queue_id=-1,
            max_msg_nums=8,
            invisible_time=context.random.choice(_INVISIBLE),
            poll_time=_POLL,
            # A broker refuses requests that by its clock are old; clocks are assumed to agree.
            born_time=int(context.clocks()[self._broker]),
            init_mode=0,
        )
        context.model.requests += 1
        asked = context.now
        reply = await self._session.request(self._address, _command(header), 6.0)
        if reply.code != ResponseCode.SUCCESS:
            await asyncio.sleep(0.5)
            return
        fields = PopMessageResponseHeader.decode(reply.fields)
        starts = _starts(fields.start_offset_info or "")
        messages, _ = decode_undamaged(reply.body)
        for message in messages:
            await self._handle(message, _receipt(message, fields, starts, self._broker), asked)

    async def _handle(self, message: StoredMessage, receipt: list[str], asked: float) -> None:
        context, number = self._context, number_of(message)
        text = damage(message, only_body=context.model.is_rotten)
        if text or number not in context.model.sent:
            context.model.wrong(f"{self._pops.group} was given what nobody sent: {text or number}")
            return
        popped = Pop(number, self._broker, asked, int(receipt[1]) + int(receipt[2]))
        self._pops.popped(popped, context.model.may_have_forgotten, self._later)
        chance = context.random.random()
        if chance < 0.15:
            return  # not acknowledged, so it is redelivered
        if chance < 0.25:
            receipt = await self._hide(receipt, context.random.choice(_INVISIBLE))
        context.model.requests += 1
        header = AckMessageRequestHeader(**self._names(receipt))
        popped.is_unanswered = True
        reply = await self._session.request(self._address, _command(header), 3.0)
        # What a failed fsync refuses, a power cut may leave on the disk all the same.
        popped.is_unanswered = "fsync of the commit log failed" in (reply.remark or "")
        if reply.code == ResponseCode.SUCCESS:
            self._pops.acknowledged(number, context.now)

    def _later(self, check: Callable[[], None]) -> None:
        """A controlled set is seen to have another master a moment after that has answered."""
        world = self._context.cluster.world
        if self._context.cluster.members:
            world.at(world.now + _SEEN, check)
        else:
            check()

    async def _hide(self, receipt: list[str], milliseconds: int) -> list[str]:
        """Hide a message for so long from now on; its new receipt."""
        header = ChangeInvisibleTimeRequestHeader(
            invisible_time=milliseconds, **self._names(receipt)
        )
        reply = await self._session.request(self._address, _command(header), 3.0)
        if reply.code != ResponseCode.SUCCESS:
            return receipt
        fields = ChangeInvisibleTimeResponseHeader.decode(reply.fields)
        times = [str(fields.pop_time), str(fields.invisible_time), str(fields.revive_qid)]
        return [receipt[7], *times, *receipt[4:]]

    def _names(self, receipt: list[str]) -> dict[str, Any]:
        is_retry = receipt[4] == "1"
        group, topic = self._pops.group, self._pops.topic
        return {
            "consumer_group": group,
            "topic": f"%RETRY%{group}_{topic}" if is_retry else topic,
            "queue_id": int(receipt[6]),
            "extra_info": " ".join(receipt),
            "offset": int(receipt[7]),
        }


def _command(header: Header) -> Command:
    return Command(header.REQUESTS[0], header.encode())


def _starts(text: str) -> dict[tuple[str, int], str]:
    parts = (part.split(" ") for part in text.split(";") if part)
    return {(mark, int(queue)): start for mark, queue, start in parts}


def _receipt(
    message: StoredMessage,
    fields: PopMessageResponseHeader,
    starts: dict[tuple[str, int], str],
    broker: str,
) -> list[str]:
    """The receipt that the client makes for a message (MQClientAPIImpl)."""
    ready = message.properties.get("POP_CK", "")
    if ready:
        return ready.split(" ")
    mark = "1" if message.topic.startswith("%RETRY%") else "0"
    numbers = (fields.pop_time, fields.invisible_time, fields.revive_qid)
    return [
        starts[mark, message.queue_id], *map(str, numbers), mark, broker,
        str(message.queue_id), str(message.queue_offset),
    ]  # fmt: skip
