"""Delayed messages are recalled by their handle, and only by it."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from mq.client.transport.session import Session
from mq.daemons.broker.app import Broker
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.recall import RecallHandle
from tests.daemons.broker.running import broker_on, now, pull, send
from tests.daemons.stopped_time import stopped_time
from tests.waiting import until

Recall = Callable[..., Awaitable[Command]]


def run(
    tmp_path: Path,
    script: Callable[[Broker, Session, Recall], Awaitable[None]],
    **settings: str,
) -> None:
    async def main() -> None:
        given = {"recallMessageEnable": "true", "brokerName": "broker-a", **settings}
        async with broker_on(tmp_path, **given) as broker, Session("127.0.0.1:1") as session:

            async def recall(handle: str, topic: str = "Later") -> Command:
                fields = {"topic": topic, "recallHandle": handle, "producerGroup": "P"}
                return await session.invoke(
                    broker.address, Command(RequestCode.RECALL_MESSAGE, fields)
                )

            await script(broker, session, recall)

    asyncio.run(main())


def test_a_recalled_message_is_never_delivered(tmp_path: Path) -> None:
    async def script(broker: Broker, session: Session, recall: Recall) -> None:
        handles = []
        with stopped_time() as stopped:
            due = stopped.now + 2200
            for unique in ("U", "V"):
                properties = {"TIMER_DELIVER_MS": str(due), "UNIQ_KEY": unique}
                reply = await send(session, broker.address, unique.encode(), properties)
                handles.append(reply.fields["recallHandle"])
            handle = RecallHandle.decode(handles[0])
            assert handle[:2] == ("Later", "broker-a")
            assert due - 1000 < handle.due <= due
            assert handle.message_id == "U"
            reply = await recall(handles[0])
        assert (reply.code, reply.fields["msgId"]) == (0, "U")
        assert reply.fields["MSG_REGION"] == "DefaultRegion"
        (message,) = await pull(session, broker.address, "Later", 1)
        assert message.body == b"V"
        assert broker.stores.messages.max_offset("Later", 1) == 1

    run(tmp_path, script)


def test_only_messages_in_the_timer_have_a_handle(tmp_path: Path) -> None:
    async def script(broker: Broker, session: Session, recall: Recall) -> None:
        later = str(now() + 5000)
        for properties in (
            {"UNIQ_KEY": "U", "DELAY": "2"},
            {"UNIQ_KEY": "U", "TIMER_DELIVER_MS": "1"},
            {"TIMER_DELIVER_MS": later},
        ):
            reply = await send(session, broker.address, b"x", properties)
            assert (reply.code, reply.fields.get("recallHandle")) == (0, None)

    run(tmp_path, script)


@pytest.mark.parametrize(
    ("handle", "topic", "code", "text"),
    [
        ("nonsense!", "Later", ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid"),
        ("", "Later", ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid"),
        (("Other", "broker-a", 5000), "Later", ResponseCode.ILLEGAL_OPERATION, "topic not match"),
        (("Later", "broker-b", 5000), "Later", ResponseCode.ILLEGAL_OPERATION, "not available"),
        (("Later", "broker-a", -1), "Later", ResponseCode.ILLEGAL_OPERATION, "timestamp invalid"),
        (("Later", "broker-a", 1 << 50), "Later", ResponseCode.ILLEGAL_OPERATION, "timestamp"),
        (("None", "broker-a", 5000), "None", ResponseCode.TOPIC_NOT_EXIST, "not exist"),
    ],
)
def test_a_handle_that_does_not_match_is_refused(
    tmp_path: Path, handle: str | tuple[str, str, int], topic: str, code: int, text: str
) -> None:
    async def script(broker: Broker, session: Session, recall: Recall) -> None:
        await send(session, broker.address, b"x", {})
        sent = handle
        if isinstance(sent, tuple):
            sent = RecallHandle(sent[0], sent[1], now() + sent[2], "U").encode()
        reply = await recall(sent, topic)
        assert reply.code == code
        assert text in (reply.remark or "")

    run(tmp_path, script)


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"recallMessageEnable": "false"}, ResponseCode.NO_PERMISSION),
        (
            {"brokerPermission": "4", "allowRecallWhenBrokerNotWriteable": "false"},
            ResponseCode.SERVICE_NOT_AVAILABLE,
        ),
        ({"brokerPermission": "4"}, ResponseCode.TOPIC_NOT_EXIST),
    ],
)
def test_recalls_can_be_disabled(tmp_path: Path, settings: dict[str, str], code: int) -> None:
    async def script(broker: Broker, session: Session, recall: Recall) -> None:
        handle = RecallHandle("Later", "broker-a", now() + 5000, "U").encode()
        assert (await recall(handle)).code == code

    run(tmp_path, script, **settings)


def test_a_recall_further_off_than_the_roll_window_is_kept_until_its_message_is_due(
    tmp_path: Path,
) -> None:
    async def script(broker: Broker, session: Session, recall: Recall) -> None:
        handles = []
        due = str(stopped.now + 1700)
        for unique in ("U", "V"):
            properties = {"TIMER_DELIVER_MS": due, "UNIQ_KEY": unique}
            reply = await send(session, broker.address, unique.encode(), properties)
            handles.append(reply.fields["recallHandle"])
        timer = broker.delivery.timer.timer
        assert timer is not None
        await until(lambda: timer._offset == 2)
        stopped.advance(250)  # in another slot than its message: they roll at different times
        assert (await recall(handles[0])).code == ResponseCode.SUCCESS
        await until(lambda: timer._offset == 3)
        stopped.advance(800)
        await until(lambda: timer._offset == 5)  # the messages have rolled
        # As with a loop that pauses for a moment: the recall rolls, and the messages are due.
        stopped.advance(800)
        (message,) = await pull(session, broker.address, "Later", 1)
        assert message.body == b"V"
        assert broker.stores.messages.max_offset("Later", 1) == 1

    with stopped_time() as stopped:
        run(tmp_path, script, timerPrecisionMs="100", timerRollWindowSlot="10")
