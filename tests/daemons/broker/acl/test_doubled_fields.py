"""Requests that name a topic or a group twice: the checked one must be the one used."""

import ast
import asyncio
import json
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

import mq.daemons.broker
from mq.daemons.broker.app import Broker
from mq.protocol.codes import RequestCode as Code
from mq.protocol.codes import ResponseCode
from tests.daemons.broker.acl.accounts import signed
from tests.daemons.broker.acl.guarded import (
    ADMIN,
    BODIES,
    MINE,
    THEIRS,
    SigningPeer,
    base,
    pull_fields,
    send_fields,
    serve,
)

HIDDEN = b"hidden-message"
# The same field in the two spellings that headers have for it.
SPELLINGS = (("topic", "b"), ("consumerGroup", "group"), ("producerGroup", "a"), ("queueId", "e"))
FOREIGN = {"topic": "secret", "b": "secret", "consumerGroup": "secret_group"}
FOREIGN |= {"group": "secret_group", "queueId": "1", "e": "1"}

Pairs = list[tuple[str, str]]


def doubled(code: int) -> Iterator[Pairs]:
    """The fields with each name a second time, before and after, in both spellings."""
    own = list(base(code).items())
    for spellings in SPELLINGS:
        for name in spellings:
            foreign = (name, FOREIGN.get(name, "X"))
            yield [foreign, *own]
            yield [*own, foreign]


def bodies(code: int) -> Iterator[bytes]:
    """The body with each of its names a second time, before and after."""
    plain = BODIES.get(Code(code))
    if plain is None:
        return
    text = json.dumps(plain)
    for old, new in (('"mine"', '"secret"'), ('"mine_group"', '"secret_group"')):
        for key in ("topic", "consumerGroup", "groupName", "t", "c"):
            member = f'"{key}": {old}'
            if member in text:
                other = f'"{key}": {new}'
                yield text.replace(member, f"{member}, {other}").encode()
                yield text.replace(member, f"{other}, {member}").encode()


def frame(code: int, opaque: int, pairs: Pairs, body: bytes, binary: bool) -> bytes:
    """A signed request; the signature covers the fields as read by a reader that takes the last
    value.
    """
    full = signed(MINE, dict(pairs), body)
    pairs = [*pairs, *((name, full[name]) for name in ("AccessKey", "Signature"))]
    if binary:
        fields = b"".join(
            struct.pack(f">h{len(name)}si{len(raw)}s", len(name), name.encode(), len(raw), raw)
            for name, raw in ((name, value.encode()) for name, value in pairs)
        )
        head = struct.pack(">hbhiiii", code, 0, 401, opaque, 0, 0, len(fields)) + fields
    else:
        members = ",".join(f"{json.dumps(name)}:{json.dumps(value)}" for name, value in pairs)
        head = (
            f'{{"code":{code},"opaque":{opaque},"flag":0,"version":401,"language":"JAVA",'
            f'"extFields":{{{members}}}}}'
        ).encode()
    return struct.pack(">iI", 4 + len(head) + len(body), binary << 24 | len(head)) + head + body


def untouched(broker: Broker) -> bool:
    """Whether nothing that is forbidden to the account has happened."""
    ends = [broker.stores.messages.max_offset("secret", queue_id) for queue_id in (0, 1)]
    offsets = (
        broker.stores.offsets.topics_of_group("secret_group"),
        broker.stores.offsets.groups_of_topic("secret"),
    )
    return (
        ends == [1, 0]
        and not any(offsets)
        and "secret_group" not in broker.clients.consumers.groups
    )


@pytest.mark.parametrize("binary", [False, True])
def test_a_field_named_twice_gives_no_access_to_others_data(tmp_path: Path, binary: bool) -> None:
    async def script(broker: Broker) -> None:
        async with SigningPeer(broker, THEIRS) as other:
            reply = await other.ask(
                Code.SEND_MESSAGE_V2, send_fields("secret", properties="KEYS\x01K"), HIDDEN
            )
            assert reply.code == ResponseCode.SUCCESS
        codes = {
            code
            for code in (*broker.listener.dispatcher.handlers, *broker.listener.dispatcher.direct)
            if isinstance(code, int)
        }
        async with SigningPeer(broker, MINE) as peer:
            for code in sorted(codes):
                if binary and code > 0x7FFF:
                    continue  # the binary header has 16 bits for it
                opaque = 0
                for pairs in doubled(code):
                    peer.writer.write(frame(code, opaque := opaque + 1, pairs, b"x", binary))
                own = list(base(code).items())
                for body in bodies(code):
                    peer.writer.write(frame(code, opaque := opaque + 1, own, body, binary))
                await answered(peer)
                assert untouched(broker), Code(code)
        assert (
            broker.stores.messages.max_offset("mine", 0) > 0
        )  # the permitted one was delivered as requested

    async def answered(peer: SigningPeer) -> None:
        """Read until the reply to a request that is served in order."""
        peer.writer.write(frame(Code.GET_BROKER_RUNTIME_INFO, 1 << 20, [], b"", binary))
        while True:
            reply = await peer.receive()
            assert HIDDEN not in bytes(reply.body)
            if reply.opaque == 1 << 20:
                break
        await asyncio.sleep(0)

    serve(tmp_path, script)


def test_the_pull_of_a_hidden_topic_would_show_it(tmp_path: Path) -> None:
    async def script(broker: Broker) -> None:
        async with SigningPeer(broker, THEIRS) as peer:
            await peer.ask(Code.SEND_MESSAGE_V2, send_fields("secret"), HIDDEN)
            reply = await peer.ask(Code.PULL_MESSAGE, pull_fields("secret", "secret_group"))
            assert HIDDEN in bytes(reply.body)
        async with SigningPeer(broker, MINE) as peer:
            reply = await peer.ask(Code.PULL_MESSAGE, pull_fields("secret", "mine_group"))
            assert (reply.code, reply.body) == (ResponseCode.NO_PERMISSION, b"")

    serve(tmp_path, script)


V1 = {
    **{"producerGroup": "P", "topic": "mine", "defaultTopic": "TBW102"},
    **{"defaultTopicQueueNums": "2", "queueId": "0", "sysFlag": "0", "flag": "0"},
    **{"bornTimestamp": "1700000000000", "properties": "", "reconsumeTimes": "0"},
    **{"unitMode": "false", "batch": "false"},
}


@pytest.mark.parametrize("serialization", [0, 1])
def test_a_send_of_the_first_version_goes_to_the_checked_topic(
    tmp_path: Path, serialization: int
) -> None:
    async def script(broker: Broker) -> None:
        async with SigningPeer(broker, MINE) as peer:
            for fields in ({**V1, "b": "secret", "e": "1"}, {"b": "secret", "e": "1", **V1}):
                reply = await peer.ask(Code.SEND_MESSAGE, fields, b"x", serialization=serialization)
                assert reply.code == ResponseCode.SUCCESS, reply
        assert (
            broker.stores.messages.max_offset("secret", 1)
            == broker.stores.messages.max_offset("secret", 0)
            == 0
        )
        assert broker.stores.messages.max_offset("mine", 0) == 2

    serve(tmp_path, script)


def test_a_consumer_gets_only_the_parsed_fields(tmp_path: Path) -> None:
    async def script(broker: Broker) -> None:
        beat = json.dumps(BODIES[Code.HEART_BEAT]).encode()
        async with SigningPeer(broker, MINE) as consumer, SigningPeer(broker, ADMIN) as asker:
            assert (await consumer.ask(Code.HEART_BEAT, {}, beat)).code == ResponseCode.SUCCESS
            fields = {"consumerGroup": "mine_group", "clientId": "c", "jstackEnable": "true"}
            asked = asyncio.ensure_future(
                asker.ask(Code.GET_CONSUMER_RUNNING_INFO, {**fields, "group": "other"})
            )
            while (passed := await consumer.pushed_command()).code != 307:
                pass
            assert passed.fields == fields
            consumer.answer(passed)
            assert (await asked).code == ResponseCode.SUCCESS

    serve(tmp_path, script)


# None of these is a topic or a group that the guard checks.
ALLOWED = [
    '{"aclFileFullPath": "", **command.fields}',
    "command.fields.get(UNIQUE_KEY_QUERY)",
    'command.fields.get(ACCESS_KEY, "")',
    "is_signed(account, command.fields, bytes(command.body))",
    "size_of_texts(command.fields.values())",
    'command.fields, command.body, command.remark = {}, b"", None',
]
GUARD = ["access.py", "required_permissions.py"]


def test_no_handler_reads_raw_fields_or_decodes_a_request_again() -> None:
    """`read_header` and `read_body` return what the guard has checked."""
    found = []
    broker = Path(mq.daemons.broker.__path__[0])
    for path in sorted(broker.rglob("*.py")):
        if path.name in GUARD:
            continue
        source = path.read_text("utf-8")
        for allowed in ALLOWED:
            source = source.replace(allowed, "pass" if " = " in allowed else "None")
        for node in ast.walk(ast.parse(source)):
            is_fields = isinstance(node, ast.Attribute) and ast.unparse(node) == "command.fields"
            is_decode = (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "decode"
                and any(ast.unparse(value).startswith("command.") for value in node.args)
            )
            if is_fields or is_decode:
                found.append(f"{path.name}: {ast.unparse(node)}")
    assert not found
