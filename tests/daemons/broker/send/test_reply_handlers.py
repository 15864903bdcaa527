"""Replies are pushed to the client that they name, and stored."""

import asyncio
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from mq.client.transport.session import Session
from mq.daemons.broker.app import Broker
from mq.protocol.bodies import HeartbeatData, ProducerData
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.headers.send import ReplyMessageRequestHeader
from mq.protocol.message import decode_record
from mq.protocol.properties import decode
from tests.daemons.broker.running import broker_on

TOPIC = "DefaultCluster_REPLY_TOPIC"
LONG_NAMES = {
    **{"a": "producerGroup", "b": "topic", "c": "defaultTopic", "d": "defaultTopicQueueNums"},
    **{"e": "queueId", "f": "sysFlag", "g": "bornTimestamp", "h": "flag", "i": "properties"},
    **{"j": "reconsumeTimes", "k": "unitMode", "m": "batch"},
}


class Asker:
    """A client that waits for replies."""

    def __init__(self, session: Session, address: str) -> None:
        self.session = session
        self.address = address
        self.pushed: list[Command] = []
        self.code = ResponseCode.SUCCESS
        session.on_request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self._take)

    def _take(self, request: Command, address: str) -> Command:
        self.pushed.append(request)
        return request.reply(self.code)

    async def beat(self, *groups: str) -> None:
        data = HeartbeatData(
            client_id="asker",
            producer_data_set=[ProducerData(group_name=group) for group in groups],
            consumer_data_set=[],
        )
        await self.session.call(self.address, Command(RequestCode.HEART_BEAT, None, data.encode()))


async def reply(
    session: Session, address: str, body: bytes, long_names: bool = False, **fields: str
) -> Command:
    header = {"a": "R", "b": TOPIC, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "7"}
    header |= {"h": "5", "i": "REPLY_TO_CLIENT\x01asker\x02own\x01x", "j": "0", "k": "false"}
    header |= {"m": "false", **fields}
    code = RequestCode.SEND_REPLY_MESSAGE_V2
    if long_names:
        code = RequestCode.SEND_REPLY_MESSAGE
        header = {LONG_NAMES[name]: value for name, value in header.items()}
    return await session.invoke(address, Command(code, header, body))


Script = Callable[[Broker, Asker, Session], Awaitable[None]]


def run(tmp_path: Path, script: Script, **settings: str) -> None:
    async def main() -> None:
        async with (
            broker_on(tmp_path, **settings) as broker,
            Session("127.0.0.1:1") as asking,
            Session("127.0.0.1:1") as replying,
        ):
            asker = Asker(asking, broker.address)
            await asker.beat("one", "two")
            await script(broker, asker, replying)

    asyncio.run(main())


@pytest.mark.parametrize("long_names", [False, True])
def test_a_reply_is_pushed_as_it_was_sent_and_stored(tmp_path: Path, long_names: bool) -> None:
    async def script(broker: Broker, asker: Asker, session: Session) -> None:
        packed = zlib.compress(b"yes" * 100)
        answer = await reply(session, broker.address, packed, long_names, f=str(0x301))
        assert answer.code == 0
        assert answer.fields["MSG_REGION"] == "DefaultRegion"
        (pushed,) = asker.pushed
        header = ReplyMessageRequestHeader.decode(pushed.fields)
        assert (header.topic, header.flag, header.sys_flag) == (TOPIC, 5, 0x301)
        assert header.store_host == broker.address
        assert header.born_host.startswith("127.0.0.1:")
        properties = decode(header.properties or "")
        assert int(properties.pop("PUSH_REPLY_TIME")) == header.store_timestamp
        assert properties == {"REPLY_TO_CLIENT": "asker", "own": "x"}
        assert pushed.body == packed
        entry = broker.stores.messages.entries.at(TOPIC, 0, 0)
        assert entry is not None
        record = broker.stores.messages.record_at(entry[0])
        assert record is not None
        stored = decode_record(record)
        assert (stored.body, stored.properties, stored.flag) == (b"yes" * 100, properties, 5)
        assert answer.fields["msgId"] == stored.offset_id
        assert (answer.fields["queueId"], answer.fields["queueOffset"]) == ("0", "0")

    run(tmp_path, script)


def test_without_storing_the_response_has_the_id_0(tmp_path: Path) -> None:
    async def script(broker: Broker, asker: Asker, session: Session) -> None:
        answer = await reply(session, broker.address, b"x")
        assert (answer.code, answer.fields["msgId"]) == (0, "0")
        assert broker.stores.messages.max_offset(TOPIC, 0) == 0

    run(tmp_path, script, storeReplyMessageEnable="false")


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ("REPLY_TO_CLIENT\x01nobody", "push reply message fail, channel of <nobody> not found."),
        ("own\x01x", "reply message properties[REPLY_TO_CLIENT] is null"),
    ],
)
def test_a_reply_without_a_client_gets_an_error_and_is_stored(
    tmp_path: Path, properties: str, text: str
) -> None:
    async def script(broker: Broker, asker: Asker, session: Session) -> None:
        answer = await reply(session, broker.address, b"x", i=properties)
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, text)
        assert asker.pushed == []
        assert broker.stores.messages.max_offset(TOPIC, 0) == 1

    run(tmp_path, script)


def test_a_client_that_refuses_a_reply_is_reported(tmp_path: Path) -> None:
    async def script(broker: Broker, asker: Asker, session: Session) -> None:
        asker.code = ResponseCode.SYSTEM_ERROR
        answer = await reply(session, broker.address, b"x")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == "push reply message to askerfail."

    run(tmp_path, script)


def test_a_client_is_found_until_it_has_left_all_its_groups(tmp_path: Path) -> None:
    async def script(broker: Broker, asker: Asker, session: Session) -> None:
        for group, code in (("one", 0), ("two", ResponseCode.SYSTEM_ERROR)):
            leave = {"clientID": "asker", "producerGroup": group}
            await asker.session.call(asker.address, Command(RequestCode.UNREGISTER_CLIENT, leave))
            assert (await reply(session, broker.address, b"x")).code == code
        await asker.beat("one")
        assert (await reply(session, broker.address, b"x")).code == 0
        await asker.session.close()
        async with asyncio.timeout(30):
            while broker.clients.producers.find("asker") is not None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    run(tmp_path, script)


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({"b": "RMQ_SYS_TRANS_HALF_TOPIC"}, ResponseCode.NO_PERMISSION, "is forbidden"),
        ({"b": "../etc"}, ResponseCode.SYSTEM_ERROR, "illegal characters"),
        ({"e": "9"}, ResponseCode.SYSTEM_ERROR, "queueId[9] is illegal"),
        ({"b": "New", "c": "None"}, ResponseCode.TOPIC_NOT_EXIST, "not exist"),
        ({"g": "soon"}, ResponseCode.SYSTEM_ERROR, "g"),
    ],
)
def test_a_reply_that_must_not_be_stored_is_not_pushed(
    tmp_path: Path, fields: dict[str, str], code: int, text: str
) -> None:
    async def script(broker: Broker, asker: Asker, session: Session) -> None:
        answer = await reply(session, broker.address, b"x", False, **fields)
        assert answer.code == code
        assert text in (answer.remark or "")
        assert asker.pushed == []

    run(tmp_path, script)


def test_a_reply_over_the_limit_is_refused(tmp_path: Path) -> None:
    async def script(broker: Broker, asker: Asker, session: Session) -> None:
        answer = await reply(session, broker.address, b"x" * 101)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert asker.pushed == []

    run(tmp_path, script, maxMessageSize="100")
