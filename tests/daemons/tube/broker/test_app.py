"""A whole broker: its status, and the lock of its folder."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import resource
import signal
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trustme

from mq.client.tube.connection import TubeConnection
from mq.daemons.broker.store.errors import StoreLocked
from mq.daemons.tube.broker.app import Broker
from mq.protocol.tube.messages import SendMessageResponseB2P
from tests.daemons.tube.broker.harness import PATIENCE, Client, bodies, run, serving

BROKER = """
import sys
from mq.daemons import service
from mq.daemons.tube.broker.app import Broker
from mq.daemons.tube.broker.config import BrokerSettings
given = dict(item.split("=", 1) for item in sys.argv[1:])
sys.exit(service.run(lambda: Broker(BrokerSettings.load(None, given))))
"""


def test_a_broker_says_what_it_has(tmp_path: Path) -> None:
    async def check(broker: Broker, client: Client) -> None:
        await client.send(b"x")
        assert broker.ready_text() == (
            f"The TubeMQ broker 1 boot success. address 127.0.0.1:{broker.port}"
        )
        lines = list(broker.state())
        assert "store demo-0: data 0 to 53, index 0 to 28" in lines
        found = {one.name: one for one in broker._metrics() if one is not None}
        assert found["mq_tube_messages_in_total"].values == [((), 1)]
        assert (("13",), 1.0) in found["mq_tube_requests_total"].values
        assert found["mq_tube_stores"].values == [((), 3)]

    run(tmp_path, check)


def test_a_folder_has_one_broker(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    code = (
        "import fcntl, sys, time\n"
        "f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX, 1, 0)\n"
        "print('has it', flush=True); time.sleep(60)"
    )
    lock = tmp_path / "store" / "lock"
    command = [sys.executable, "-c", code, str(lock)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout is not None and other.stdout.readline()
            with pytest.raises(StoreLocked, match="set primaryPath"):
                run(tmp_path, _nothing)
        finally:
            other.kill()


def test_stores_leave_files_for_connections_and_say_which_limit_to_raise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise one more topic would prevent the saving of offsets, and connections."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (128, 128))
    # Two files of each; 32 of 128 are left for other things, and the broker has a topic of its own.
    fits = ",".join(f"t{n}:1:1" for n in range(47))
    run(tmp_path, _nothing, topicList=fits)
    with pytest.raises(OSError, match=r"have 96 files open.*raise the limit"):
        run(tmp_path, _nothing, topicList=f"{fits},more:1:1")


def test_connections_leave_files_for_the_stores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (128, 128))

    async def check(broker: Broker, client: Client) -> None:
        most = 128 - 64 - broker.serving.stores.held_files
        assert most == 24  # the client's, and 23 more
        others = [await asyncio.open_connection("127.0.0.1", broker.port) for _ in range(most - 1)]
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        with pytest.raises(ConnectionError):
            if not await reader.read(1):
                raise ConnectionResetError
        for _, one in [*others, (reader, writer)]:
            one.close()
        assert (await client.send(b"x")).success

    run(tmp_path, check, topicList=",".join(f"t{n}:1:1" for n in range(18)) + ",demo:1:1")


async def _nothing(broker: Broker, client: Client) -> None: ...


def test_files_of_stores_that_are_being_opened_count_also_where_others_are_cleaned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(broker: Broker, client: Client) -> None:
        stores, demo = broker.serving.stores, broker.serving.topics.get("demo")
        assert demo is not None
        recovered, may_go_on = asyncio.Event(), asyncio.Event()

        async def wait(_: object) -> None:
            recovered.set()
            await may_go_on.wait()

        monkeypatch.setattr(stores, "_before_serving", wait)
        before = stores.held_files
        new = [dataclasses.replace(demo, name=f"new{n}") for n in range(3)]
        opening = asyncio.ensure_future(stores.open(new))
        await recovered.wait()
        held = stores.held_files
        assert held > before
        await stores.clean([])
        assert stores.held_files == held
        may_go_on.set()
        await opening
        await stores.clean([])
        assert stores.held_files == held

    run(tmp_path, check)


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as (broker, _):
            with pytest.raises(OSError, match=f"127.0.0.1:{broker.port}"):
                async with serving(tmp_path / "other", port=broker.port):
                    pass

    asyncio.run(main())


def test_clients_may_come_by_tls_on_a_port_of_its_own(tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(str(tmp_path / "server.pem"))
    issued.private_key_pem.write_to_path(str(tmp_path / "server.key"))

    async def check(broker: Broker, _: Client) -> None:
        context = ssl.create_default_context()
        authority.configure_trust(context)
        connection = TubeConnection(f"127.0.0.1:{broker.tls_port}", tls=context)
        client = Client(connection)
        assert (await client.send(b"x" * 20_000)).success
        await client.register()
        assert bodies(await client.get()) == [b"x" * 20_000]
        connection.close()

    tls = {
        "tlsEnable": "true", "tlsPort": "0", "tls.config.file": "",
        "tls.server.certPath": str(tmp_path / "server.pem"),
        "tls.server.keyPath": str(tmp_path / "server.key"),
    }  # fmt: skip
    run(tmp_path, check, **tls)


@pytest.mark.parametrize("mode", ["sync", "os"])
def test_a_kill_loses_nothing_that_was_acknowledged(tmp_path: Path, mode: str) -> None:
    """Including commits after the last save; and no message twice."""
    acknowledged: list[bytes] = []

    async def send_until_killed(port: int, process: subprocess.Popen[bytes], upto: int) -> None:
        connection = TubeConnection(f"127.0.0.1:{port}")
        client = Client(connection)

        async def one(number: int) -> None:
            body = b"%d" % number
            answer: SendMessageResponseB2P = await client.send(body)
            assert answer.success
            acknowledged.append(body)
            if len(acknowledged) == upto:
                os.kill(process.pid, signal.SIGKILL)

        first = len(acknowledged) * 10
        await asyncio.gather(*(one(first + n) for n in range(400)), return_exceptions=True)
        connection.close()

    async def found() -> list[bytes]:
        async with serving(tmp_path, flushMode=mode, maxSegmentSize=4096) as (_, client):
            await client.register(readStatus=0, currOffset=0)
            messages: list[bytes] = []
            while (answer := await client.get()).success:
                messages += bodies(answer)
            return messages

    for turn in range(3):
        given = {
            "port": "0", "webPort": "-1", "brokerId": "1", "primaryPath": str(tmp_path / "store"),
            "topicList": "demo:3:2", "flushMode": mode, "maxSegmentSize": "4096",
        }  # fmt: skip
        arguments = [f"{name}={value}" for name, value in given.items()]
        command = [sys.executable, "-c", BROKER, *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            port = next(int(line.rpartition(b":")[2]) for line in process.stdout
                        if b"boot success" in line)  # fmt: skip

            async def main(
                port: int = port, process: subprocess.Popen[bytes] = process, turn: int = turn
            ) -> None:
                async with asyncio.timeout(PATIENCE):
                    await send_until_killed(port, process, (turn + 1) * 150)

            asyncio.run(main())
            process.kill()
        messages = asyncio.run(found())
        assert len(messages) == len(set(messages))
        assert set(acknowledged) <= set(messages)


def test_a_group_that_is_ahead_of_a_store_that_lost_its_end_misses_nothing(tmp_path: Path) -> None:
    """As after a power cut, with `os`: offsets are saved sooner than messages are flushed."""

    async def main() -> None:
        async with asyncio.timeout(PATIENCE):
            async with serving(tmp_path) as (_, client):
                for number in range(4):
                    await client.send(b"%d" % number)
                await client.register()
                await client.get()
                assert (await client.commit()).currOffset == 4 * 28
            for path, record in (("", 53), ("index", 28)):
                (file,) = (
                    one for one in (tmp_path / "store" / "demo-0" / path).iterdir()
                    if one.suffix in (".tube", ".index")
                )  # fmt: skip
                file.write_bytes(file.read_bytes()[: 2 * record])
            (tmp_path / "store" / "demo-0" / "checkpoint").unlink()
            async with serving(tmp_path) as (_, client):
                for number in range(4, 8):
                    await client.send(b"%d" % number)
                assert (await client.register()).currOffset == 2 * 28
                assert bodies(await client.get()) == [b"4", b"5", b"6", b"7"]
            async with serving(tmp_path) as (broker, _):  # and that was kept
                assert broker.serving.offsets.committed("group", ("demo", 0)) == 2 * 28

    asyncio.run(main())


def test_a_topic_is_removed_while_other_stores_are_flushed_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(broker: Broker, client: Client) -> None:
        removed = broker.serving.topics["other"]
        await client.send(b"x", topicName="other")
        store = broker.serving.stores.get("demo", 0)
        assert store is not None
        done = store.flushed

        def again(*given: Any) -> None:
            done(*given)
            broker.flusher.request(store)

        monkeypatch.setattr(store, "flushed", again)
        broker.flusher.request(store)
        await broker._remove_topic(removed)
        assert not (tmp_path / "store" / "other-0").exists()
        monkeypatch.undo()

    run(tmp_path, check, topicList="demo:1:1,other:1:1")
