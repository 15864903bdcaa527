"""An administrator of TubeMQ's masters: sets up brokers and topics, and changes them."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

from tests.simulation.tube.cluster import BROKER_PORT, TOKEN, WEB_PORT
from tests.simulation.tube.workloads import Context, Workload

_ANSWER_SECONDS = 3.0
_EXISTED, _UNCHANGED = 402, 403


class Unanswered(Exception):
    """It is unknown whether the request was executed."""


class _Answer(asyncio.Protocol):
    """One answer by HTTP, and the end."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._data = bytearray()
        self.done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._data += data

    def connection_lost(self, _: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(bytes(self._data))


async def ask(context: Context, method: str, **parameters: object) -> dict[str, Any]:
    """What the active master answers. Raises Unanswered."""
    given = {"method": method, "confModAuthToken": TOKEN, "createUser": "sim", "modifyUser": "sim"}
    query = urlencode({**given, **parameters})
    for master in context.cluster.masters:
        try:
            return await _ask(master.address, WEB_PORT, f"/webapi.htm?{query}")
        except (OSError, TimeoutError, Unanswered):
            continue
    raise Unanswered(method)


async def _ask(host: str, port: int, target: str) -> dict[str, Any]:
    request = f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(_ANSWER_SECONDS):
        transport, answer = await loop.create_connection(lambda: _Answer(request), host, port)
        try:
            head, found, body = (await answer.done).partition(b"\r\n\r\n")
        finally:
            transport.close()
    if not found:
        raise Unanswered(target)
    lines = head.decode().split("\r\n")
    if lines[0].split(" ")[1] == "302":
        where = next(line for line in lines if line.startswith("Location: "))
        to = urlsplit(where.removeprefix("Location: "))
        assert to.hostname is not None
        if (to.hostname, to.port) == (host, port):
            raise Unanswered(target)
        return await _ask(to.hostname, to.port or 80, target)
    return dict(json.loads(body))


def _is_done(answer: Mapping[str, Any]) -> bool:
    """Whether each part of a change is so now."""
    rows = answer.get("data", []) if answer.get("result") is True else []
    return bool(rows) and all(row["errCode"] in (200, _EXISTED, _UNCHANGED) for row in rows)


async def _until_done(context: Context, method: str, **parameters: object) -> None:
    while True:
        try:
            answer = await ask(context, method, **parameters)
        except Unanswered:
            answer = {}
        if _is_done(answer):
            return
        await asyncio.sleep(0.5)


def administer(topics: Mapping[str, int], pause: float) -> Workload:
    """Set all up, then change something now and again."""

    async def run(context: Context) -> None:
        chance = context.chance("changes")
        brokers = [(n, one.address) for n, one in enumerate(context.cluster.brokers, 1)]
        every = ",".join(str(number) for number, _ in brokers)
        for number, address in brokers:
            where = {"brokerId": number, "brokerIp": address, "brokerPort": BROKER_PORT}
            await _until_done(context, "admin_add_broker_configure", **where)
            await _until_done(context, "admin_online_broker_configure", brokerId=number)
        for topic, partitions in topics.items():
            await _deploy(context, every, topic, partitions)
        await _reload(context, every)
        while not context.is_over:
            await asyncio.sleep(chance.expovariate(1 / pause))
            if chance.random() < 0.5:
                await _deploy(context, every, f"more-{len(context.model.wanted)}", 1)
            else:
                topic = chance.choice(sorted(topics))
                await _enlarge(context, every, topic)
            await _reload(context, every)

    return run


async def _deploy(context: Context, every: str, topic: str, partitions: int) -> None:
    if topic in context.model.partitions:
        return  # before this program was started again
    context.model.wanted[topic] = partitions
    given = {"brokerId": every, "topicName": topic, "numPartitions": partitions}
    await _until_done(context, "admin_add_new_topic_record", **given)
    context.model.partitions[topic] = partitions
    context.cluster.world.tell("administrator", f"{topic} has {partitions} partitions")


async def _enlarge(context: Context, every: str, topic: str) -> None:
    partitions = context.model.wanted[topic] + 1
    context.model.wanted[topic] = partitions
    given = {"brokerId": every, "topicName": topic, "numPartitions": partitions}
    await _until_done(context, "admin_modify_topic_info", **given)
    context.model.partitions[topic] = partitions
    context.cluster.world.tell("administrator", f"{topic} has {partitions} partitions")


async def _reload(context: Context, every: str) -> None:
    try:
        await ask(context, "admin_reload_broker_configure", brokerId=every)
    except Unanswered:
        pass


async def check(context: Context) -> None:
    """Whether the masters know all that they have acknowledged. Raises Unanswered."""
    answer = await ask(context, "admin_query_topic_info")
    found = {
        (row["topicName"], int(one["brokerId"])): int(one["numPartitions"])
        for row in answer["data"]
        for one in row["topicInfo"]
    }
    for topic, partitions in context.model.partitions.items():
        for number in range(1, len(context.cluster.brokers) + 1):
            known = found.get((topic, number), 0)
            if not partitions <= known <= context.model.wanted[topic]:
                context.model.wrong(
                    f"masters acknowledged {partitions} partitions of {topic} at {number}, and "
                    f"know of {known}"
                )
