"""A producer of transactions over the wire, and a broker to talk to."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from mq.client.transport.session import Session
from mq.daemons.broker.app import Broker
from mq.protocol.bodies import HeartbeatData, ProducerData
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.headers.transaction import CheckTransactionStateRequestHeader
from mq.protocol.message import StoredMessage, decode_record, decode_records
from mq.protocol.message_id import decode_offset_id
from tests.daemons.broker.running import broker_on, now

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
GROUP = "P"
TOPIC = "Orders"
HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
OPERATION = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"


class Half:
    """The data of a half that its producer keeps."""

    def __init__(self, reply: Command) -> None:
        assert reply.code == ResponseCode.SUCCESS, reply
        self.offset_id = reply.fields["msgId"]
        self.physical = decode_offset_id(self.offset_id).offset
        self.offset = int(reply.fields["queueOffset"])


class TransactionPeer:
    """A member of a producer group that speaks to one broker."""

    def __init__(self, session: Session, address: str, group: str = GROUP) -> None:
        self.session = session
        self.address = address
        self.group = group
        self.checks: asyncio.Queue[tuple[CheckTransactionStateRequestHeader, StoredMessage]] = (
            asyncio.Queue()
        )
        session.on_request(RequestCode.CHECK_TRANSACTION_STATE, self._checked)

    def _checked(self, request: Command, address: str) -> None:
        assert request.is_one_way
        header = CheckTransactionStateRequestHeader.decode(request.fields)
        self.checks.put_nowait((header, decode_record(request.body)))

    async def beat(self) -> None:
        data = HeartbeatData(
            client_id=self.session.client_id,
            producer_data_set=[ProducerData(group_name=self.group)],
            consumer_data_set=[],
        )
        await self.session.call(self.address, Command(RequestCode.HEART_BEAT, None, data.encode()))

    async def send(
        self, body: bytes, born: int = 0, flags: int = 4, /, **properties: str
    ) -> Command:
        given = {
            "TRAN_MSG": "true",
            "PGROUP": self.group,
            "UNIQ_KEY": body.decode("latin-1"),
            **properties,
        }
        text = "\x02".join(f"{name}\x01{value}" for name, value in given.items() if value)
        header = {"a": self.group, "b": TOPIC, "c": "TBW102", "d": "4", "e": "2", "f": str(flags)}
        header |= {"g": str(born or now()), "h": "5", "i": text, "j": "0", "k": "false"}
        command = Command(RequestCode.SEND_MESSAGE_V2, {**header, "m": "false"}, body)
        return await self.session.invoke(self.address, command)

    async def prepare(self, body: bytes, born: int = 0, /, **properties: str) -> Half:
        return Half(await self.send(body, born, **properties))

    async def end(self, half: Half, how: int, **fields: str) -> Command:
        header = {
            "producerGroup": self.group,
            "tranStateTableOffset": str(half.offset),
            "commitLogOffset": str(half.physical),
            "commitOrRollback": str(how),
            "fromTransactionCheck": "false",
            "msgId": "id",
            **fields,
        }
        command = Command(RequestCode.END_TRANSACTION, header)
        return await self.session.invoke(self.address, command, 5)

    async def read(self, topic: str, queue: int = 0) -> list[StoredMessage]:
        """All messages of a queue."""
        found: list[StoredMessage] = []
        while True:
            fields = {"consumerGroup": "G", "topic": topic, "queueId": str(queue)}
            fields |= {"maxMsgNums": "32", "queueOffset": str(len(found)), "sysFlag": "4"}
            fields |= {"commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*"}
            command = Command(RequestCode.PULL_MESSAGE, {**fields, "subVersion": "0"})
            reply = await self.session.invoke(self.address, command)
            if reply.code != ResponseCode.SUCCESS:
                return found
            found += decode_records(reply.body)

    async def consumed(self) -> list[bytes]:
        """The bodies that consumers see."""
        return [message.body for message in await self.read(TOPIC, 2)]


def kept(broker: Broker, topic: str) -> list[StoredMessage]:
    """The messages in queue 0 of a topic that clients cannot read."""
    found = []
    for offset in range(broker.stores.messages.max_offset(topic, 0)):
        entry = broker.stores.messages.entries.at(topic, 0, offset)
        record = None if entry is None else broker.stores.messages.record_at(entry[0])
        assert record is not None
        found.append(decode_record(record))
    return found


def operations(broker: Broker) -> list[StoredMessage]:
    """The messages of the operation topic."""
    return kept(broker, OPERATION)


Script = Callable[[Broker, TransactionPeer], Awaitable[None]]


def run(tmp_path: Path, script: Script, **settings: str) -> None:
    """Run a script with a producer, whose group the broker knows, and its own broker."""

    async def main() -> None:
        async with broker_on(tmp_path, **settings) as broker, Session("127.0.0.1:1") as session:
            peer = TransactionPeer(session, broker.address)
            await peer.beat()
            await script(broker, peer)

    asyncio.run(main())
