"""Daemons that hang, do not answer or have just started: clients do not wait for them."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mq.client.admin import Admin
from mq.client.errors import RequestTimeout, RouteNotFound
from mq.client.producer.producer import Producer
from mq.client.transport.session import Session
from mq.daemons.broker.app import Broker
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.channel import Channel
from mq.protocol.bodies import TopicConfig
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.message import Message
from tests.client.clusters import TOPIC, cluster
from tests.client.gate import gate
from tests.client.scripted import name_server, refuses, routes, scripted, stores
from tests.interop.ports import free_port
from tests.processes import stand_still

TIMEOUT = 10.0
AT_ONCE = 5.0  # seconds; an upper bound on any machine, below TIMEOUT and the default timeout


@contextmanager
def name_server_process(root: Path) -> Iterator[tuple[str, int]]:
    """Run `mq namesrv` on a free port; yields its address and the id of its process."""
    port = free_port()
    command = [sys.executable, "-m", "mq", "namesrv", "--set", f"listenPort={port}"]
    command += ["--set", f"kvConfigPath={root / 'kv.json'}"]
    with open(root / "namesrv.log", "ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 60
        while not re.search("boot success", (root / "namesrv.log").read_text()):
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.01)  # a log file has no event to wait for
        yield f"127.0.0.1:{port}", process.pid
    finally:
        process.kill()
        process.wait()


def test_a_send_to_a_healthy_broker_does_not_wait_for_a_stopped_name_server(
    tmp_path: Path,
) -> None:
    async def scenario(where: str, pid: int) -> None:
        settings = {
            "listenPort": "0",
            "brokerIP1": "127.0.0.1",
            "namesrvAddr": where,
            "storePathRootDir": str(tmp_path / "store"),
        }
        async with (
            Broker(BrokerSettings.load(None, settings)) as broker,
            Producer(where) as producer,
        ):
            await Admin(producer.session).create_topic(
                broker.address, TopicConfig(topic_name=TOPIC)
            )
            await producer.send(Message(TOPIC, b"before"))
            stand_still(pid)
            try:
                producer._table.outdate(TOPIC)  # as any failed send does
                for _ in range(3):
                    began = time.monotonic()
                    await producer.send(Message(TOPIC, b"meanwhile"), timeout=TIMEOUT)
                    assert time.monotonic() - began < AT_ONCE
                    producer._table.outdate(TOPIC)
            finally:
                os.kill(pid, signal.SIGCONT)

    with name_server_process(tmp_path) as (where, pid):
        asyncio.run(scenario(where, pid))


def test_the_first_send_does_not_wait_for_a_hanging_name_server_of_two() -> None:
    async def scenario() -> None:
        async with cluster() as there, gate(there.address) as hanging:
            hanging.blocked = True
            async with Producer([hanging.address, there.address]) as producer:
                began = time.monotonic()
                await producer.send(Message(TOPIC, b"1"), timeout=TIMEOUT)
                assert time.monotonic() - began < AT_ONCE

    asyncio.run(scenario())


def test_a_send_without_a_route_waits_at_most_for_its_timeout() -> None:
    async def scenario() -> None:
        async with cluster() as there, gate(there.address) as hanging:
            hanging.blocked = True
            async with Producer(hanging.address) as producer:
                began = time.monotonic()
                with pytest.raises(RequestTimeout, match=r"0\.2 s"):
                    await producer.send(Message(TOPIC, b"1"), timeout=0.2)
                with pytest.raises(RequestTimeout, match=r"0\.2 s"):
                    await producer.send_batch([Message(TOPIC, b"1")], timeout=0.2)
                assert time.monotonic() - began < AT_ONCE

    asyncio.run(scenario())


def test_a_send_reaches_a_live_broker_although_no_name_server_answers() -> None:
    asked: Counter[str] = Counter()

    async def scenario() -> None:
        async with (
            scripted(stores("good", asked)) as good,
            scripted(refuses("bad", asked)) as bad,
            scripted(name_server({"bad": bad, "good": good})) as namesrv,
            gate(namesrv) as way,
            Producer(way.address, faults=None) as producer,
        ):
            await producer.prepare(TOPIC)
            way.blocked = True
            began = time.monotonic()
            for _ in range(8):
                await producer.send(Message(TOPIC, b"1"), timeout=TIMEOUT)
            assert time.monotonic() - began < AT_ONCE
            assert asked["bad"] > 1

    asyncio.run(scenario())


def test_the_only_broker_is_found_at_its_new_address_within_one_send() -> None:
    asked: Counter[str] = Counter()
    places = {"a": f"127.0.0.1:{free_port()}"}

    def answer(request: Command, channel: Channel) -> Command:
        return routes(places)(request, channel)  # type: ignore[return-value]

    async def scenario() -> None:
        async with (
            scripted(stores("new", asked)) as new,
            scripted({RequestCode.GET_ROUTEINFO_BY_TOPIC: answer}) as namesrv,
            Producer(namesrv) as producer,
        ):
            await producer.prepare(TOPIC)
            places["a"] = new
            await producer.send(Message(TOPIC, b"1"))

    asyncio.run(scenario())
    assert asked == {"new": 1}


def test_concurrent_callers_share_one_route_query() -> None:
    asked: Counter[str] = Counter()

    def count(request: Command, channel: Channel) -> Command:
        asked[request.fields["topic"]] += 1
        return routes({"a": "127.0.0.1:1"})(request, channel)  # type: ignore[return-value]

    async def scenario() -> None:
        async with scripted({RequestCode.GET_ROUTEINFO_BY_TOPIC: count}) as namesrv:
            async with Session(namesrv) as session:
                await asyncio.gather(*(session.route("one") for _ in range(20)))
                assert asked == {"one": 1}
                impatient = [asyncio.create_task(session.route("two")) for _ in range(3)]
                await asyncio.sleep(0)
                impatient[0].cancel()  # a caller that is cancelled does not affect the others
                await asyncio.gather(*impatient[1:])
                assert asked == {"one": 1, "two": 1}

    asyncio.run(scenario())


def test_a_pending_route_query_fails_when_the_session_closes() -> None:
    async def scenario() -> None:
        async with scripted({RequestCode.GET_ROUTEINFO_BY_TOPIC: lambda r, c: None}) as namesrv:
            async with Session(namesrv) as session:
                waiting = asyncio.create_task(session.route("one"))
                await asyncio.sleep(0.05)
            with pytest.raises(Exception, match="closed"):
                await waiting

    asyncio.run(scenario())


class Forgetful:
    """A name server that knows one topic until `forgot` is set, as if it had been restarted."""

    def __init__(self, brokers: dict[str, str], creators: dict[str, str]) -> None:
        self.forgot = False
        self._topic = routes(brokers)
        self._default = routes(creators)

    def answer(self, request: Command, channel: Channel) -> Command:
        if request.fields["topic"] == "TBW102":
            return self._default(request, channel)  # type: ignore[return-value]
        if self.forgot:
            return request.reply(ResponseCode.TOPIC_NOT_EXIST, remark="No topic route info")
        return self._topic(request, channel)  # type: ignore[return-value]


def test_a_restarted_name_server_does_not_remove_known_routes() -> None:
    asked: Counter[str] = Counter()

    async def scenario() -> None:
        async with (
            scripted(stores("known", asked)) as known,
            scripted(stores("other", asked)) as other,
        ):
            names = Forgetful({"known": known}, {"other": other})
            async with scripted({RequestCode.GET_ROUTEINFO_BY_TOPIC: names.answer}) as namesrv:
                async with Producer(namesrv) as producer:
                    await producer.send(Message(TOPIC, b"1"))
                    names.forgot = True
                    for _ in range(3):
                        producer._table.outdate(TOPIC)
                        with pytest.raises(RouteNotFound):
                            await producer.session.fresh_route(TOPIC)
                        result = await producer.send(Message(TOPIC, b"2"))
                        assert result.queue.broker_name == "known"
                    master = await producer.session.master_address(TOPIC, "known")
                    assert master == known
                    with pytest.raises(RouteNotFound):  # an explicit query gets the current answer
                        await Admin(producer.session).topic_route(TOPIC)
                    assert (await producer.session.route(TOPIC)).broker_datas
                    blocking = producer.session.blocking()
        assert blocking.name_servers
        assert asked == {"known": 4}

    asyncio.run(scenario())
