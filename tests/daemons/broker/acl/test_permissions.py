"""docs/permissions.md matches the broker: for every request and every system topic."""

import re
from pathlib import Path

import pytest

from mq.daemons.broker.app import Broker
from mq.protocol.bodies import TopicConfig
from mq.protocol.codes import RequestCode as Code
from mq.protocol.codes import ResponseCode
from mq.protocol.command import Command
from mq.protocol.fastjson import dumps
from tests.daemons.broker.acl.guarded import (
    ADMIN,
    BODIES,
    DEFAULT,
    MINE,
    NOTHING,
    STRANGER,
    THEIRS,
    Account,
    SigningPeer,
    base,
    pull_fields,
    send_fields,
    serve,
)

DOCUMENT = (Path(__file__).parents[4] / "docs" / "permissions.md").read_text("utf-8")
DOCUMENT = DOCUMENT.partition("## A name server")[0]
REQUESTS = {
    int(code): (name, needed)
    for code, name, needed in re.findall(r"^\| (\d+) \| (\w+) \| ([\w, ]+) \|$", DOCUMENT, re.M)
}
TOPICS = [
    (name.replace("*", "cn"), *columns)
    for name, *columns in re.findall(
        r"^\| ([\w*]+)(?: \(any other\))? \| ([\w ]+) \| (yes|no) \| (\w+) \|$", DOCUMENT, re.M
    )
]
# The remarks of a refusal by the guard: handlers use the same code for other reasons.
SAYS_NO = (
    "No default permission",
    "Need admin",
    "No accessKey",
    "No acl config",
    "Check signature",
)


def is_refused(reply: Command) -> bool:
    refused = reply.code == ResponseCode.NO_PERMISSION
    return refused and (reply.remark or "").startswith(SAYS_NO)


async def prepared(broker: Broker) -> dict[str, str]:
    """Put a message and a half into `mine`; returns the fields that end the half."""
    async with SigningPeer(broker, MINE) as peer:
        assert (await peer.ask(Code.SEND_MESSAGE_V2, send_fields("mine"), b"x")).code == 0
        fields = send_fields("mine", properties="TRAN_MSG\x01true\x02PGROUP\x01P")
        half = await peer.ask(Code.SEND_MESSAGE_V2, fields, b"half")
        assert half.code == 0
    entry = broker.stores.messages.entries.at("RMQ_SYS_TRANS_HALF_TOPIC", 0, 0)
    assert entry is not None
    return {
        **{"producerGroup": "P", "tranStateTableOffset": "0", "commitLogOffset": str(entry[0])},
        **{"commitOrRollback": "8", "msgId": "id", "fromTransactionCheck": "false"},
    }


@pytest.mark.parametrize("who", [None, STRANGER, NOTHING, THEIRS, MINE, ADMIN])
def test_every_request_needs_the_permissions_in_the_table(
    tmp_path: Path, who: Account | None
) -> None:
    async def script(broker: Broker) -> None:
        ports = broker.listener, broker.fast_listener
        handled = {
            c for port in ports for c in (*port.dispatcher.handlers, *port.dispatcher.direct)
        }
        assert handled == REQUESTS.keys()
        end = await prepared(broker)
        wrong = []
        for listener in ports:
            async with SigningPeer(listener.port, who) as peer:
                for code, (name, needed) in REQUESTS.items():
                    if (
                        code not in listener.dispatcher.handlers
                        and code not in listener.dispatcher.direct
                    ):
                        continue
                    assert name == Code(code).name
                    fields = end if code == Code.END_TRANSACTION else base(code)
                    body = dumps(BODIES[Code(code)]) if Code(code) in BODIES else b"x"
                    reply = await peer.ask(code, fields, body)
                    if is_refused(reply) != (not may(who, needed)):
                        wrong.append((name, reply))
        assert not wrong

    serve(tmp_path, script, transactionCheckInterval="3600000")


@pytest.mark.parametrize(("who", "refused"), [(ADMIN, False), (DEFAULT, True), (None, True)])
def test_a_code_without_a_row_is_for_administrators_only(
    tmp_path: Path, who: Account | None, refused: bool
) -> None:
    async def script(broker: Broker) -> None:
        broker.listener.dispatcher.serve({99_999: lambda command, channel: command.reply()})
        async with SigningPeer(broker, who) as peer:
            assert is_refused(await peer.ask(99_999)) is refused

    serve(tmp_path, script)


def may(who: Account | None, needed: str) -> bool:
    """Whether an account has this permission for topic and group `mine`."""
    if who in (None, STRANGER):
        return False
    if who == ADMIN or needed == "any account":
        return True
    return who == MINE and needed != "an administrator"


@pytest.mark.parametrize("who", [STRANGER, NOTHING, THEIRS, DEFAULT, ADMIN])
def test_system_topics_are_open_to_the_accounts_in_the_table(tmp_path: Path, who: Account) -> None:
    async def script(broker: Broker) -> None:
        assert len(TOPICS) == 14
        wrong = []
        for topic, sends, pulls, looks in TOPICS:
            if broker.stores.topics.get(topic) is None:
                broker.stores.topics.table[topic] = TopicConfig(
                    topic_name=topic, read_queue_nums=1, write_queue_nums=1
                )
            query = {**base(Code.QUERY_MESSAGE), "topic": topic}
            entries = {**base(Code.QUERY_CONSUME_QUEUE), "topic": topic, "queueId": "0"}
            listed, general = who == ADMIN, who in (ADMIN, DEFAULT)
            may_look = listed if looks == "topicPerms" else general
            account = who != STRANGER
            async with SigningPeer(broker, who) as peer:
                for code, fields, allowed in (
                    (
                        Code.SEND_MESSAGE_V2,
                        send_fields(topic),
                        {"no": False, "PUB": general, "any account": account}[sends],
                    ),
                    (Code.PULL_MESSAGE, pull_fields(topic, "g"), pulls == "yes" and may_look),
                    (Code.QUERY_MESSAGE, query, may_look),
                    (Code.QUERY_CONSUME_QUEUE, entries, may_look),
                ):
                    reply = await peer.ask(code, fields, b"x")
                    if (reply.code != ResponseCode.NO_PERMISSION) != allowed:
                        wrong.append((topic, code.name, reply))
        assert not wrong

    serve(tmp_path, script)
