"""The table of replies to pulls in docs/protocol.md, tested at a broker row by row."""

import asyncio
import re
from pathlib import Path

from mq.client import Producer
from mq.daemons.standalone import Standalone
from mq.protocol.bodies import MessageQueue
from mq.protocol.codes import RequestCode
from mq.protocol.flags import PullSysFlag
from mq.protocol.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from mq.protocol.message import Message
from tests.daemons.broker.harness import create_topic
from tests.daemons.peer import Peer

TEXT = (Path(__file__).parents[4] / "docs" / "protocol.md").read_text(encoding="utf-8")
SECTION = TEXT.split("\n## Answers to a pull\n")[1].split("\n## ")[0]
LOG_FILE, MESSAGES = 4096, 10  # of 1500 bytes: two in each log file
BEGIN, END = 2, MESSAGES  # the first log file is deleted
# These need a file that disappears while it is read.
NOT_ASKED = {
    "in the queue; the log file of the message was deleted meanwhile",
    "in the queue; its queue file cannot be read",
}


def documented() -> dict[str, int]:
    """The code in the table, by the position of the offset."""
    rows = re.findall(r"^\| ([^|]+) \| (\d+) [A-Z_]+ \| [^|]+ \|$", SECTION, re.MULTILINE)
    return {where: int(code) for where, code in rows}


async def pull(peer: Peer, topic: str, offset: int, expression: str = "*") -> tuple[int, int]:
    """Code and nextBeginOffset."""
    header = PullMessageRequestHeader(
        consumer_group="readers",
        topic=topic,
        queue_id=0,
        queue_offset=offset,
        max_msg_nums=32,
        sys_flag=PullSysFlag.SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
        subscription=expression,
    )
    reply = await peer.ask(RequestCode.PULL_MESSAGE, header)
    return reply.code, PullMessageResponseHeader.decode(reply.fields).next_begin_offset


async def answers(folder: Path) -> dict[str, tuple[int, int]]:
    settings = {"mappedFileSizeCommitLog": str(LOG_FILE)}
    async with Standalone(folder, name_server_port=0, broker_port=0, properties=settings) as pair:
        broker = pair.broker
        await broker.registration.first_round.wait()
        async with Peer(broker.port) as peer:
            await create_topic(peer, "Orders", 1)
            await create_topic(peer, "Empty", 1)
            queue = MessageQueue(topic="Orders", broker_name="broker-a", queue_id=0)
            async with Producer(pair.name_server_address, "shop") as producer:
                for _ in range(MESSAGES):
                    message = Message("Orders", bytes(1500), tags="paid")
                    assert (await producer.send(message, queue=queue)).status == "SEND_OK"
            store = broker.stores.messages
            store.log.remove_first()
            store.queue("Orders", 0).set_minimum(store.log.minimum)
            return {
                "in the queue; messages match": await pull(peer, "Orders", END - 2),
                "in the queue; no scanned entry matches the filter": await pull(
                    peer, "Orders", BEGIN, "open"
                ),
                "= end": await pull(peer, "Orders", END),
                "0, and the queue never had a message": await pull(peer, "Empty", 0),
                "other than 0, and the queue never had a message": await pull(peer, "Empty", 7),
                "< begin": await pull(peer, "Orders", BEGIN - 1),
                "> end": await pull(peer, "Orders", END + 5),
            }


def test_a_broker_answers_pulls_as_in_the_table(tmp_path: Path) -> None:
    got = asyncio.run(answers(tmp_path))
    codes = documented()
    assert set(codes) == set(got) | NOT_ASKED
    assert {where: code for where, (code, _) in got.items()} == {
        where: code for where, code in codes.items() if where not in NOT_ASKED
    }
    assert {where: following for where, (_, following) in got.items()} == {
        "in the queue; messages match": END,
        "in the queue; no scanned entry matches the filter": END,
        "= end": END,
        "0, and the queue never had a message": 0,
        "other than 0, and the queue never had a message": 0,
        "< begin": BEGIN,
        "> end": END,
    }
