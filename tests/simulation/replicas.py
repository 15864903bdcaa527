"""A SYNC_MASTER and its slave during kills, power cuts and partitions: a check.

At the end the master's disk is destroyed, and the slave must have everything acknowledged.
"""

import asyncio
import struct
from typing import Any

from mq.client.errors import MQError
from mq.client.transport.session import Session
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.errors import RemoteProtocolError
from mq.protocol.message import decode_record
from tests.simulation import identity, seams
from tests.simulation.checks import check
from tests.simulation.cluster import BROKER_PORT, Cluster, Daemon
from tests.simulation.world import START, World

_SEEDS = range(1, 6)
_WORK_SECONDS = 30.0
_PAUSE_SECONDS = 0.01  # between two messages
_KINDS = ("kill slave", "kill master", "cut", "cut one way", "slave stands still", "stop slave")
_POWER = ("slave's power", "master's power")


class _Pair:
    """A story: the acknowledged messages and their results."""

    def __init__(self, seed: int, flush: str) -> None:
        self.world = World(seed)
        seams.use(self.world)
        self.random = self.world.stream("replicas", is_noisy=False)
        self.cluster = Cluster(self.world, {"flushDiskType": flush})
        self.cluster.add_name_server()
        self.master = self.cluster.add_broker(brokerRole="SYNC_MASTER")
        self.slave = self.cluster.add_slave(self.master, 1)
        self.kinds = _KINDS + (_POWER if flush == "SYNC_FLUSH" else ())
        self.acknowledged: dict[int, bytes] = {}  # bodies by physical offsets
        self.codes: dict[int, int] = {}
        self.missing: list[str] = []
        self.asked = 0
        self.faults: list[str] = []

    def run(self) -> None:
        world, cluster = self.world, self.cluster
        cluster.start()
        world.run(START + 4.0)
        end = world.now + _WORK_SECONDS
        cluster.add_client("sender", lambda: self._send(end)).start()
        left: list[str] = []
        while world.now < end:
            world.run(world.now + self.random.uniform(0.3, 3.0))
            left = left or self.random.sample(self.kinds, len(self.kinds))  # each in its turn
            self._fault(left.pop())
        self.master.lose_power()
        self._start(self.slave)
        world.run(world.now + 5.0)
        asking = cluster.add_client("asker", self._ask)
        asking.start()
        world.run(world.now + 120.0, lambda: asking.is_done)

    def _fault(self, kind: str) -> None:
        world, seconds = self.world, self.random.uniform(0.05, 3.0)
        self.faults.append(kind)
        world.tell("fault", f"{kind}, for {seconds:.2f} s")
        daemon = self.slave if "slave" in kind else self.master
        if kind.startswith("cut"):
            links = [(self.master.address, self.slave.address)]
            if kind == "cut":
                links.append((self.slave.address, self.master.address))
            mend = world.network.cut(links)
            world.run(world.now + seconds)
            mend()
            return
        if kind == "slave stands still":
            process = daemon.process
            if process is not None and process.is_alive:
                process.stop()
                world.run(world.now + seconds)
                process.go_on()
            return
        if kind.startswith("kill"):
            daemon.kill()
        elif kind.startswith("stop"):
            daemon.terminate()
        else:
            daemon.lose_power()
        world.run(world.now + seconds)
        self._start(daemon)

    def _start(self, daemon: Daemon) -> None:
        if not daemon.machine.has_power:
            daemon.machine.boot()
        daemon.start()

    async def _send(self, end: float) -> None:
        number = 0
        address = f"{self.master.address}:{BROKER_PORT}"
        async with Session("10.0.0.1:9876", timeout=6.0) as session:
            while self.world.now < end:
                number += 1
                await asyncio.sleep(_PAUSE_SECONDS)
                body = b"%d " % number * self.random.choice((1, 30, 700))
                fields = {
                    **{"a": "P", "b": "Orders", "c": "TBW102", "d": "4", "e": str(number % 4)},
                    **{"f": "0", "g": "1700000000000", "h": "0", "i": "", "j": "0"},
                    **{"k": "false", "m": "false"},
                }
                command = Command(RequestCode.SEND_MESSAGE_V2, fields, body)
                try:
                    reply = await session.invoke(address, command)
                except (MQError, OSError):
                    continue
                self.codes[reply.code] = self.codes.get(reply.code, 0) + 1
                if reply.code == ResponseCode.SUCCESS:
                    (offset,) = struct.unpack(">q", bytes.fromhex(reply.fields["msgId"][16:]))
                    self.acknowledged[offset] = body

    async def _ask(self) -> None:
        address = f"{self.slave.address}:{BROKER_PORT}"
        async with Session("10.0.0.1:9876", timeout=6.0) as session:
            for offset, body in self.acknowledged.items():
                request = Command(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(offset)})
                reply = await session.invoke(address, request)
                self.asked += 1
                try:
                    found = decode_record(reply.body).body if reply.code == 0 else None
                except RemoteProtocolError:
                    found = None
                if found != body:
                    self.missing.append(f"{body[:20]!r} at {offset}: {found and found[:20]!r}")


def _story(seed: int, flush: str) -> dict[str, Any]:
    identity.begin()
    pair = _Pair(seed, flush)
    try:
        pair.run()
        return {
            "acknowledged": len(pair.acknowledged),
            "asked": pair.asked,
            "missing": pair.missing[:5],
            "codes": pair.codes,
            "faults": pair.faults,
            "story": pair.world.trace.lines[-300:] if pair.missing else [],
        }
    finally:
        seams.use(None)


@check
def replicas() -> dict[str, Any]:
    """The messages that the slave lacks, by flush modes and seed."""
    return {
        f"{flush} {seed}": _story(seed, flush)
        for flush in ("SYNC_FLUSH", "ASYNC_FLUSH")
        for seed in _SEEDS
    }
