"""Limits of the memory that peers can use in a daemon: for each of them and in total."""

import asyncio
import contextlib
import resource
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from mq.daemons.broker.app import Broker
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.channel import MAX_PENDING_BYTES, WRITE_BUFFER_LIMIT, Channel
from mq.daemons.dispatch import Dispatcher
from mq.daemons.listener import Listener
from mq.daemons.memory import CLIENTS_SETTING, CONNECTION_SETTING, PIECE_COST, MemoryBudget
from mq.daemons.metrics import of_listeners
from mq.daemons.namesrv.app import NameServer
from mq.daemons.namesrv.config import NamesrvSettings
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.frame import encode
from tests.daemons.broker.harness import create_topic, send
from tests.daemons.peer import Peer
from tests.waiting import until

MIB = 1024 * 1024
LIMIT = 17 * MIB
PULL = {
    **{"consumerGroup": "TOOLS_CONSUMER", "topic": "Orders", "queueId": "0", "queueOffset": "0"},
    **{"maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "20000"},
    **{"subscription": "*", "subVersion": "0", "expressionType": "TAG"},
}
HOLD = {**PULL, "sysFlag": "6"}  # and may be suspended

Script = Callable[[Broker, Peer], Awaitable[None]]


def with_broker(root: Path, script: Script, **settings: str) -> None:
    async def main() -> None:
        overrides = {"storePathRootDir": str(root / "store"), "listenPort": "0", **settings}
        loaded = BrokerSettings.load(None, {"brokerName": "broker-a", **overrides})
        async with Broker(loaded) as broker, Peer(broker.port) as peer:
            await create_topic(peer, "Orders")
            await script(broker, peer)

    asyncio.run(main())


def pulls(fields: dict[str, str], count: int) -> bytes:
    return b"".join(
        encode(Command(RequestCode.PULL_MESSAGE, fields, opaque=number)) for number in range(count)
    )


def half_frame(size: int, opaque: int = 5) -> bytes:
    """The first half of a send of `size` bytes."""
    whole = encode(Command(RequestCode.SEND_MESSAGE_V2, {}, bytes(size), opaque=opaque))
    return whole[: len(whole) // 2]


def channel_of(listener: Listener, peer: Peer) -> Channel:
    return next(channel for channel in listener.channels if channel.remote == peer.address)


def test_pulls_of_a_peer_that_does_not_read_wait_until_it_reads(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        for _ in range(4):
            await send(peer, "Orders", bytes(100_000))
        requests = pulls(PULL, 3000)  # 0.8 MiB of requests, with 600 MB of replies
        async with Peer(broker.port) as greedy:
            await greedy.ask(RequestCode.GET_BROKER_CONFIG)  # it is accepted
            channel = channel_of(broker.listener, greedy)
            writing = asyncio.ensure_future(_write(greedy, requests))
            await until(lambda: channel.stalled)
            assert (await send(peer, "Orders", b"x")) is not None  # others are served
            # A full buffer, one more joined reply, and the requests read before.
            assert channel.memory < WRITE_BUFFER_LIMIT + 3 * MIB
            for number in range(3000):  # none is lost, and all arrive in order
                reply = await greedy.receive()
                assert (reply.opaque, reply.code) == (number, ResponseCode.SUCCESS)
                assert channel.memory < WRITE_BUFFER_LIMIT + 3 * MIB
            await writing
            await until(lambda: channel.memory == 0)

    with_broker(tmp_path, script)


async def _write(peer: Peer, data: bytes) -> None:
    peer.writer.write(data)
    with contextlib.suppress(ConnectionError):
        await peer.writer.drain()


def test_a_suspended_pull_counts_with_its_parsed_expression(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        async with Peer(broker.port) as other:
            tags = "||".join(map(str, range(9000)))
            other.writer.write(pulls({**HOLD, "subscription": tags}, 1))
            await until(lambda: any("held pulls" in c.kept for c in broker.listener.channels))
            channel = channel_of(broker.listener, other)
            assert channel.kept["held pulls"] > 20 * len(tags)  # texts, hashes, their tables
        fields = {**PULL, "subscription": "||".join(map(str, range(20_000)))}
        refused = await peer.ask(RequestCode.PULL_MESSAGE, fields)
        assert refused.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert "65536 are allowed" in (refused.remark or "")
        for number in range(2000):
            tags = f"{number:04}" * 249
            fields = {**PULL, "subscription": tags, "queueId": "1"}
            assert (await peer.ask(RequestCode.PULL_MESSAGE, fields)).code != refused.code
        remembered = broker.services.subscriptions._expressions
        assert 0 < sum(map(len, remembered)) <= MIB

    with_broker(tmp_path, script)


def test_suspended_pulls_of_a_peer_that_does_not_read_are_answered_when_it_reads(
    tmp_path: Path,
) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        async with Peer(broker.port) as greedy:
            await greedy.ask(RequestCode.GET_BROKER_CONFIG)
            channel = channel_of(broker.listener, greedy)
            greedy.writer.write(pulls(HOLD, 200))
            await until(lambda: len(channel.attributes.get("held", ())) == 200)
            assert channel.kept["held pulls"] > 200 * 2048
            await send(peer, "Orders", bytes(1_000_000))  # one message, 200 MB of replies
            assert channel.memory < WRITE_BUFFER_LIMIT + 4 * MIB
            for _ in range(200):
                assert len((await greedy.receive()).body) > 1_000_000
            await until(lambda: channel.memory == 0)
            assert not channel.kept

    with_broker(tmp_path, script)


def test_a_suspended_pull_keeps_only_needed_fields(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        peer.writer.write(pulls({**HOLD, "more": "x" * MIB}, 3))
        await until(lambda: broker.listener.memory.size() > 0)
        channel = channel_of(broker.listener, peer)
        await until(lambda: len(channel.attributes.get("held", ())) == 3)
        assert channel.memory < 3 * 4096
        for pull in channel.attributes["held"]:
            assert "more" not in pull.request["extFields"]

    with_broker(tmp_path, script)


def test_a_queue_id_is_remembered_in_one_spelling_only(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        await send(peer, "Orders", b"x")
        for text in ("0", " 0", "0 ", "00", "+0", "-0", "\u0660"):
            reply = await peer.ask(RequestCode.PULL_MESSAGE, {**PULL, "queueId": text})
            assert reply.code == ResponseCode.SUCCESS
            fields = {
                **{"a": "P", "b": "Orders", "c": "TBW102", "d": "4", "e": text, "f": "0"},
                **{"g": "1700000000000", "h": "0", "i": "", "j": "0", "k": "false", "m": "false"},
            }
            reply = await peer.ask(RequestCode.SEND_MESSAGE_V2, fields, b"x")
            assert reply.code == ResponseCode.SUCCESS
        assert list(broker.services.pulls._queues) == [("Orders", "0")]
        assert list(broker.services.targets.remembered) == [("Orders", "0")]

    with_broker(tmp_path, script)


def test_connections_leave_descriptors_for_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (88, 88))

    async def main() -> None:
        async with (
            Listener(Dispatcher({}), "127.0.0.1", 0) as listener,
            Peer(listener.port) as peer,
        ):
            assert (await peer.ask(1)).code != ResponseCode.SYSTEM_BUSY
            async with Peer(listener.port) as second:
                await second.ask(1)
                async with Peer(listener.port) as third:
                    reply = await third.ask(1)
                    assert reply.code == ResponseCode.SYSTEM_BUSY
                    assert "maxConnections" in (reply.remark or "")
            assert listener.turned_away == 1

    asyncio.run(main())


def evictions(listener: Listener) -> Iterator[tuple[str, float]]:
    for metric in of_listeners({"main": listener}):
        if metric.name == "mq_connections_evicted_total":
            for (cause,), value in metric.values:
                yield cause, value


async def half_frames(listener: Listener, memory: MemoryBudget, honest: Peer, ask: int) -> None:
    """Many connections leave a large frame incomplete: they are closed, active ones stay."""
    async with contextlib.AsyncExitStack() as stack:
        hostile = [await stack.enter_async_context(Peer(listener.port)) for _ in range(40)]
        for number, peer in enumerate(hostile):
            peer.writer.write(half_frame(2 * MIB, opaque=number))
        await until(lambda: memory.evicted[CLIENTS_SETTING] > 20)
        memory.took(0)
        assert memory.size() <= LIMIT
        assert (await honest.ask(ask)).is_response
        assert dict(evictions(listener))[CLIENTS_SETTING] == memory.evicted[CLIENTS_SETTING]
        told = 0
        for number, peer in enumerate(hostile):
            if peer.reader.at_eof() or len(listener.channels) == 1:
                continue
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, TimeoutError):
                async with asyncio.timeout(0.05):
                    reply = await peer.receive()
                    assert (reply.opaque, reply.code) == (number, ResponseCode.SYSTEM_BUSY)
                    assert CLIENTS_SETTING in (reply.remark or "")
                    told += 1
        assert told > 10


def test_the_total_of_incomplete_frames_is_limited_and_the_refusal_names_the_setting(
    tmp_path: Path,
) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        await half_frames(
            broker.listener, broker.listener.memory, peer, RequestCode.GET_BROKER_CONFIG
        )

    with_broker(tmp_path, script, clientMemoryMaxBytes=str(LIMIT))


def test_a_name_server_has_the_same_budget(tmp_path: Path) -> None:
    async def main() -> None:
        settings = {"listenPort": "0", "clientMemoryMaxBytes": str(LIMIT)}
        loaded = NamesrvSettings.load(None, {**settings, "kvConfigPath": str(tmp_path / "kv")})
        async with NameServer(loaded) as server, Peer(server.port) as peer:
            listener = server.listener
            await half_frames(listener, listener.memory, peer, RequestCode.GET_NAMESRV_CONFIG)

    asyncio.run(main())


def test_the_connection_that_holds_most_for_longest_is_closed_first() -> None:
    async def main() -> None:
        now = 0.0
        memory = MemoryBudget(lambda: 0, lambda: 10_000, lambda: now)
        async with (
            Listener(Dispatcher({}), "127.0.0.1", 0, memory=memory) as listener,
            Peer(listener.port) as old,
            Peer(listener.port) as large,
        ):
            await old.ask(1)
            await large.ask(1)
            first, second = channel_of(listener, old), channel_of(listener, large)
            first.keep("something", 2000)
            memory.look()
            now = 60.0
            second.keep("something", 8500)  # too much in total
            assert memory.evicted == {CLIENTS_SETTING: 1}
            await until(lambda: listener.channels.keys() == {second})
            assert memory.size() == 8500

    asyncio.run(main())


def test_one_connection_cannot_hold_more_than_its_limit() -> None:
    async def main() -> None:
        memory = MemoryBudget(lambda: 10_000, lambda: 0)
        async with (
            Listener(Dispatcher({}), "127.0.0.1", 0, memory=memory) as listener,
            Peer(listener.port) as peer,
            Peer(listener.port) as other,
        ):
            await peer.ask(1)
            await other.ask(1)
            channel_of(listener, other).keep("something", 9999)
            channel_of(listener, peer).keep("something", 10_001)
            await peer.closed_by_daemon()
            assert memory.evicted == {CONNECTION_SETTING: 1}
            assert len(listener.channels) == 1

    asyncio.run(main())


def test_many_small_pieces_of_a_frame_count_with_their_memory() -> None:
    async def main() -> None:
        async with (
            Listener(Dispatcher({}), "127.0.0.1", 0) as listener,
            Peer(listener.port) as peer,
        ):
            await peer.ask(1)
            channel = channel_of(listener, peer)
            channel.data_received(half_frame(1000)[:100])
            for _ in range(50):
                channel.data_received(b"x")
            assert channel.memory == 150 + 51 * PIECE_COST

    asyncio.run(main())


@pytest.mark.parametrize(
    "request_of_a_mebibyte",
    [
        Command(7, body=bytes(MIB)),
        Command(7, {"value": "v" * MIB}),
        Command(7, {"n" * MIB: "v"}),
        Command(7, {f"{number:04d}": "v" for number in range(MIB // PIECE_COST)}),
        Command(7, remark="r" * MIB),
    ],
    ids=["body", "value", "name", "fields", "remark"],
)
def test_requests_that_are_answered_later_are_bounded_for_each_connection(
    request_of_a_mebibyte: Command,
) -> None:
    async def main() -> None:
        go = asyncio.Event()
        begun = 0

        async def slow(command: Command, channel: Channel) -> Command:
            nonlocal begun
            begun += 1
            await go.wait()
            return command.reply()

        async with (
            Listener(Dispatcher({7: slow}), "127.0.0.1", 0) as listener,
            Peer(listener.port) as peer,
        ):
            request = encode(request_of_a_mebibyte)
            writing = asyncio.ensure_future(_write(peer, request * 20))
            await until(lambda: begun == MAX_PENDING_BYTES // MIB)
            async with Peer(listener.port) as other:
                assert (await other.ask(8)).is_response
            assert begun == MAX_PENDING_BYTES // MIB
            go.set()
            for _ in range(20):
                assert (await peer.receive()).code == ResponseCode.SUCCESS
            await writing

    asyncio.run(main())
