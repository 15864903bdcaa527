"""Push: which consumers get which messages, in which form, and which are left to pulls."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack

import pytest

from mq.daemons.channel import Channel
from mq.daemons.dispatch import Dispatcher
from mq.daemons.listener import Listener
from mq.daemons.snode.push.service import PushService, SlowConsumerPolicy
from mq.daemons.snode.push.sessions import ANY_BROKER, PushSessions
from mq.protocol.batch import encode_batch
from mq.protocol.bodies import MessageQueue
from mq.protocol.command import Command
from mq.protocol.flags import SysFlag
from mq.protocol.headers.send import Letter
from mq.protocol.message import Message, StoredMessage, decode_record, encode_record
from mq.protocol.message_id import encode_offset_id
from mq.protocol.properties import encode as encode_properties
from tests.daemons.own_records import own_records
from tests.daemons.peer import Peer

QUEUE = MessageQueue("T", "a", 3)
BORN_HOST = bytes((10, 0, 0, 9)) + (4711).to_bytes(4, "big")
ID = encode_offset_id("10.0.0.1", 10911, 5000)


class Acked(dict[str, int]):
    """The offsets that groups have acknowledged in the only queue."""

    def acked(self, enode: str, topic: str, group: str, queue_id: int) -> int | None:
        assert (topic, enode, queue_id) == QUEUE
        return self.get(group)


class Stage:
    """A push service with the channels of a listener."""

    def __init__(self, channels: list[Channel], peers: list[Peer]) -> None:
        self.channels = channels
        self.peers = peers
        self.acked = Acked()
        self.policy = SlowConsumerPolicy.CLOSE
        self.now = 100.0
        self.disabled: set[str] = set()
        self.sessions = PushSessions()
        self.service = PushService(
            self.sessions,
            self.acked,
            threshold=lambda: 1024,
            policy=lambda: self.policy,
            may_consume=lambda group: group not in self.disabled,
            clock=lambda: self.now,
        )

    def claim(self, number: int, group: str, queue: MessageQueue = QUEUE) -> None:
        self.sessions.replace(self.channels[number], f"client-{number}", group, [queue])

    def send(
        self,
        changes: Mapping[str, str] | None = None,
        *,
        offset: int = 100,
        body: bytes = b"lamp",
    ) -> None:
        """Simulate a broker's acknowledgement of a send; `changes` are fields of the request or
        reply.
        """
        fields = {
            Letter.PRODUCER_GROUP: "producers",
            Letter.TOPIC: "T",
            Letter.QUEUE_ID: "3",
            Letter.SYS_FLAG: "0",
            Letter.BORN_TIMESTAMP: "1600000000000",
            Letter.FLAG: "9",
            Letter.PROPERTIES: encode_properties({"TAGS": "paid", "colour": "red"}),
            Letter.RECONSUME_TIMES: "0",
        }
        answer = {
            "msgId": ID,
            "queueId": "3",
            "queueOffset": str(offset),
            "storeTimestamp": "1600000000005",
        }
        for name, value in (changes or {}).items():
            (answer if name in answer else fields)[name] = value
        self.service.acknowledged("a", fields, body, answer, BORN_HOST)

    async def pushed(self, number: int = 0) -> Command:
        command = await self.peers[number].pushed_command()
        assert command.code == 352 and command.is_one_way
        return command


def on_stage(count: int, scenario: Callable[[Stage], Awaitable[None]]) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            listener = await stack.enter_async_context(Listener(Dispatcher({}), "127.0.0.1", 0))
            peers = []
            for _ in range(count):
                peers.append(await stack.enter_async_context(Peer(listener.port)))
                await peers[-1].ask(1)
            await scenario(Stage(list(listener.channels), peers))

    asyncio.run(main())


def test_a_consumer_gets_the_record_that_a_pull_would_return() -> None:
    async def scenario(stage: Stage) -> None:
        stage.claim(0, "g")
        stage.send(offset=100, body=b"lamp")
        command = await stage.pushed()
        assert command.fields == {
            "queueOffset": "100",
            "messageId": ID,
            "queueId": "3",
            "topic": "T",
            "consumerGroup": "g",
            "enodeName": "a",
        }
        stored = StoredMessage(
            "T",
            b"lamp",
            {"TAGS": "paid", "colour": "red"},
            queue_id=3,
            queue_offset=100,
            physical_offset=5000,
            flag=9,
            born_timestamp=1600000000000,
            born_host=("10.0.0.9", 4711),
            store_timestamp=1600000000005,
            store_host=("10.0.0.1", 10911),
        )
        assert command.body == encode_record(stored)

    on_stage(1, scenario)


def test_a_client_that_names_queues_by_number_gets_the_body_as_it_was_sent() -> None:
    async def scenario(stage: Stage) -> None:
        stage.claim(0, "g", MessageQueue("T", ANY_BROKER, 3))
        stage.send(offset=100, body=b"lamp")
        command = await stage.pushed()
        assert command.fields == {"queueOffset": "100", "topic": "T", "queueId": "3"}
        assert command.body == b"lamp"

    on_stage(1, scenario)


def test_each_group_of_each_channel_gets_a_message() -> None:
    async def scenario(stage: Stage) -> None:
        stage.claim(0, "g")
        stage.claim(0, "h")
        stage.claim(1, "g")
        stage.claim(1, "other", QUEUE._replace(queue_id=4))
        stage.send()
        groups = [(await stage.pushed(0)).fields["consumerGroup"] for _ in range(2)]
        assert sorted(groups) == ["g", "h"]
        assert (await stage.pushed(1)).fields["consumerGroup"] == "g"
        assert stage.service.counts == {"pushed": 3}

    on_stage(2, scenario)


def test_the_messages_of_a_batch_are_pushed_one_by_one() -> None:
    async def scenario(stage: Stage) -> None:
        stage.claim(0, "g")
        messages = [Message("T", b"one", tags="x"), Message("T", b"two", flag=5)]
        ids = [encode_offset_id("10.0.0.1", 10911, position) for position in (5000, 5200)]
        stage.send(
            {"msgId": ",".join(ids), Letter.BATCH: "true", Letter.PROPERTIES: "all\x01of them"},
            body=encode_batch(messages),
            offset=100,
        )
        found = [decode_record((await stage.pushed()).body, check_crc=True) for _ in range(2)]
        assert [(m.queue_offset, m.physical_offset, m.body, m.flag) for m in found] == [
            (100, 5000, b"one", 0),
            (101, 5200, b"two", 5),
        ]
        assert found[0].tags == "x"
        assert [message.properties["all"] for message in found] == ["of them"] * 2

    on_stage(1, scenario)


def test_a_batch_with_properties_that_the_broker_drops_is_left_to_pulls() -> None:
    async def scenario(stage: Stage) -> None:
        stage.claim(0, "g")
        message = Message("T", b"one")
        message.system["RETRY_TOPIC"] = "Other"
        stage.send({Letter.BATCH: "true"}, body=encode_batch([message]))
        stage.send(offset=101)
        assert (await stage.pushed()).fields["queueOffset"] == "101"

    on_stage(1, scenario)


def test_a_topic_with_a_long_name_has_the_second_form_of_records() -> None:
    topic = "T" * 200

    async def scenario(stage: Stage) -> None:
        stage.sessions.replace(stage.channels[0], "c", "g", [QUEUE._replace(topic=topic)])
        stage.service._offsets = Anything()
        stage.send({Letter.TOPIC: topic})
        message = decode_record((await stage.pushed()).body)
        assert (message.topic, message.version) == (topic, 2)

    on_stage(1, scenario)


class Anything:
    """Has no data about any group."""

    def acked(self, enode: str, topic: str, group: str, queue_id: int) -> int | None:
        return None


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({Letter.PROPERTIES: "TAGS\x01a\x02DELAY\x013"}, "elsewhere"),
        ({Letter.PROPERTIES: "TIMER_DELIVER_MS\x011600000000000\x02"}, "elsewhere"),
        ({Letter.PROPERTIES: "TRAN_MSG\x01true"}, "elsewhere"),
        ({Letter.PROPERTIES: "a\x01b\x02POP_CK\x01x"}, "elsewhere"),
        ({Letter.SYS_FLAG: str(SysFlag.TRANSACTION_PREPARED)}, "elsewhere"),
        ({"msgId": "0A00000100002A9F"}, "unknown"),
        ({"msgId": ""}, "unknown"),
        ({"queueOffset": "none"}, "unknown"),
        ({Letter.PROPERTIES: "long\x01" + "x" * 40_000}, "unknown"),
        ({Letter.BATCH: "true"}, "unknown"),  # the body is not a batch
    ],
)
def test_messages_out_of_place_or_undecidable_are_left_to_pulls(
    fields: dict[str, str], reason: str
) -> None:
    async def scenario(stage: Stage) -> None:
        stage.claim(0, "g")
        stage.send(fields)
        stage.send(offset=101)
        assert (await stage.pushed()).fields["queueOffset"] == "101"
        assert stage.service.counts == {reason: 1, "pushed": 1}

    on_stage(1, scenario)


def test_retry_topics_are_left_to_pulls() -> None:
    async def scenario(stage: Stage) -> None:
        retries = QUEUE._replace(topic="%RETRY%g")
        stage.claim(0, "g", retries)
        stage.send({Letter.TOPIC: retries.topic})
        assert stage.service.counts == {"elsewhere": 1}

    on_stage(1, scenario)


def test_a_stalled_channel_is_skipped_and_buffers_no_more_than_its_limit() -> None:
    async def scenario(stage: Stage) -> None:
        stage.claim(0, "g")
        stage.claim(1, "h")
        stalled = stage.channels[0]
        body = bytes(256 * 1024)
        most = 0
        for offset in range(200):  # 50 MiB, part of which the kernel buffers
            stage.send(offset=offset, body=body)
            assert (await stage.pushed(1)).fields["queueOffset"] == str(offset)
            most = max(most, stalled.unsent)
        assert stalled.stalled
        assert most <= 1024 * 1024 + 2 * len(body)
        assert stage.service.counts["unwritable"] > 100
        seen = [int((await stage.pushed(0)).fields["queueOffset"]) for _ in range(4)]
        assert seen == [0, 1, 2, 3]  # each that was written arrives, complete

    on_stage(2, scenario)


def test_one_loop_iteration_writes_no_more_than_its_limit() -> None:
    async def scenario(stage: Stage) -> None:
        stage.claim(0, "g")
        for offset in range(100):
            stage.send(offset=offset, body=bytes(100 * 1024))
        assert stage.service.counts == {"pushed": 11, "unwritable": 89}
        await stage.pushed()

    on_stage(1, scenario)


def test_the_session_of_a_slow_consumer_is_closed_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(stage: Stage) -> None:
        stage.claim(0, "g")
        stage.acked["g"] = 100
        stage.send(offset=1124)  # 1024 messages of lag: not more than the threshold
        stage.send(offset=1125)
        assert (await stage.pushed()).fields["queueOffset"] == "1124"
        await stage.peers[0].closed_by_daemon()
        assert len(stage.sessions) == 0
        assert stage.service.counts == {"pushed": 1, "slow": 1}

    on_stage(1, scenario)
    (warning,) = own_records(caplog, "mq.daemons.snode.push", logging.WARNING)
    text = warning.getMessage()
    assert (
        "group g, client client-0" in text and "acknowledged offset 100" in text and "1125" in text
    )


def test_with_skip_a_slow_consumer_is_left_to_pulls_until_it_has_caught_up() -> None:
    async def scenario(stage: Stage) -> None:
        stage.policy = SlowConsumerPolicy.SKIP
        stage.claim(0, "g")
        stage.acked["g"] = 100
        for offset in (1124, 1125, 1126):
            stage.send(offset=offset)
        stage.acked["g"] = 1127
        stage.send(offset=1127)
        found = [(await stage.pushed()).fields["queueOffset"] for _ in range(2)]
        assert found == ["1124", "1127"]
        assert stage.service.counts == {"pushed": 2, "slow": 1, "behind": 1}

    on_stage(1, scenario)


def test_a_consumer_that_begins_with_a_backlog_is_not_closed() -> None:
    async def scenario(stage: Stage) -> None:
        stage.claim(0, "g")
        stage.acked["g"] = 0
        for offset in range(100_000, 100_010):
            stage.send(offset=offset)
        assert stage.service.counts == {"behind": 10}
        stage.acked["g"] = 100_000
        stage.send(offset=100_010)
        assert (await stage.pushed()).fields["queueOffset"] == "100010"

    on_stage(1, scenario)


def test_a_group_without_acknowledgements_counts_from_the_first_message() -> None:
    async def scenario(stage: Stage) -> None:
        stage.claim(0, "g")
        for offset in (100_000, 101_024, 101_025, 101_026):
            stage.send(offset=offset)
        assert stage.service.counts == {"pushed": 2, "behind": 2}
        stage.acked["g"] = 101_000
        stage.send(offset=101_027)
        assert stage.service.counts == {"pushed": 3, "behind": 2}

    on_stage(1, scenario)


def test_a_consumer_that_was_pushed_to_before_its_offset_was_known_is_not_closed() -> None:
    async def scenario(stage: Stage) -> None:
        stage.claim(0, "g")
        stage.send(offset=2000)
        stage.acked["g"] = 500  # it returns with a backlog
        stage.send(offset=2001)
        assert stage.service.counts == {"pushed": 1, "behind": 1}
        assert len(stage.sessions) == 1

    on_stage(1, scenario)


def test_messages_sent_through_another_snode_make_no_consumer_slow() -> None:
    async def scenario(stage: Stage) -> None:
        stage.claim(0, "g")
        stage.acked["g"] = 100
        stage.send(offset=100)
        stage.send(offset=5000)  # the others, and their offsets, were sent through another snode
        assert stage.service.counts == {"pushed": 1, "behind": 1}
        stage.acked["g"] = 5000
        stage.send(offset=5001)
        assert stage.service.counts == {"pushed": 2, "behind": 1}

    on_stage(1, scenario)


def test_after_a_lost_connection_nothing_is_pushed_for_a_while() -> None:
    async def scenario(stage: Stage) -> None:
        stage.claim(0, "g")
        stage.service.link_ended("a")
        stage.send(offset=100)
        stage.now += 2.9
        stage.send(offset=101)
        stage.now += 0.2
        stage.send(offset=102)
        assert (await stage.pushed()).fields["queueOffset"] == "102"
        assert stage.service.counts == {"broken": 2, "pushed": 1}

    on_stage(1, scenario)


@pytest.mark.parametrize("name", ["id", "offset", '"queueOffset":"offset"', '"%s%d', "\u00fc\n"])
def test_no_name_of_a_group_spoils_a_push(name: str) -> None:
    async def scenario(stage: Stage) -> None:
        stage.claim(0, name)
        stage.send(offset=7)
        fields = (await stage.pushed()).fields
        assert (fields["consumerGroup"], fields["queueOffset"], fields["messageId"]) == (
            *(name, "7"),
            ID,
        )

    on_stage(1, scenario)


def test_a_group_that_may_not_consume_is_pushed_nothing() -> None:
    async def scenario(stage: Stage) -> None:
        stage.claim(0, "g")
        stage.claim(0, "h")
        stage.disabled.add("g")
        stage.send()
        assert (await stage.pushed()).fields["consumerGroup"] == "h"
        assert stage.service.counts == {"disabled": 1, "pushed": 1}

    on_stage(1, scenario)


def test_messages_of_one_turn_leave_in_order() -> None:
    async def scenario(stage: Stage) -> None:
        stage.claim(0, "g")
        for offset in range(500):
            stage.send(offset=offset)
        found = [int((await stage.pushed()).fields["queueOffset"]) for _ in range(500)]
        assert found == list(range(500))

    on_stage(1, scenario)
