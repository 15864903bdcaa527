"""A stand-in for etcd, as far as controllers use it: the JSON of its gateway, over HTTP.

Members share one state and one order of answers: consensus and a reliable disk are assumed. An
answer may still be lost: a member may be stopped, killed between a write and its answer, or cut
off. A member that was stopped executes requests late. Leases run by its clock; while no member is
alive they do not expire, and they restart with the first member that returns (as with a new leader
of etcd).
"""

import asyncio
import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from mq.client.machine import clock
from tests.simulation.world import Process, World

PORT = 2379
# Seconds from a request to its effect: a round among members, an fsync.
_WORKS = (0.000_3, 0.004)
_NOT_FOUND = 5  # of gRPC
_LOOK = 0.1  # interval of checks for expired leases

Json = dict[str, Any]


@dataclass
class _Pair:
    value: str  # base64
    created: int
    changed: int
    lease: int


@dataclass
class _Lease:
    seconds: float
    until: float


class _Refused(Exception):
    """An error of etcd with its gRPC code."""


@dataclass
class Etcd:
    """The state that all members share."""

    pairs: dict[bytes, _Pair] = field(default_factory=dict)
    leases: dict[int, _Lease] = field(default_factory=dict)
    revision: int = 1
    members: list[Process] = field(default_factory=list)  # members that have started
    _next_lease: int = 1

    def joins(self, process: Process) -> None:
        """A member starts to serve; with the first one leases restart."""
        self.members = [one for one in self.members if one.is_alive]
        if not self.members:
            for lease in self.leases.values():
                lease.until = clock.monotonic() + lease.seconds
        self.members.append(process)

    def expire(self) -> None:
        now = clock.monotonic()
        for id_ in [id_ for id_, lease in self.leases.items() if lease.until <= now]:
            self._end(id_)

    def _end(self, lease: int) -> None:
        del self.leases[lease]
        gone = [key for key, pair in self.pairs.items() if pair.lease == lease]
        if gone:
            self.revision += 1
        for key in gone:
            del self.pairs[key]

    def answer(self, path: str, asked: Json) -> Json:
        """Raises _Refused."""
        self.expire()
        work = {
            "kv/range": self._range,
            "kv/txn": self._transact,
            "lease/grant": self._grant,
            "lease/keepalive": self._keep_alive,
            "lease/revoke": self._revoke,
        }[path]
        return {**work(asked), "header": {"revision": str(self.revision)}}

    def _range(self, asked: Json) -> Json:
        first = base64.b64decode(asked["key"])
        behind = base64.b64decode(asked["range_end"]) if "range_end" in asked else first + b"\0"
        found = [
            {
                "key": base64.b64encode(key).decode(),
                "create_revision": str(pair.created),
                "mod_revision": str(pair.changed),
                **({"value": pair.value} if pair.value else {}),
                **({"lease": str(pair.lease)} if pair.lease else {}),
            }
            for key, pair in sorted(self.pairs.items())
            if first <= key < behind
        ]
        return {"kvs": found, "count": str(len(found))} if found else {}

    def _transact(self, asked: Json) -> Json:
        if not all(self._holds(each) for each in asked["compare"]):
            return {}
        for change in asked["success"]:
            put, delete = change.get("requestPut"), change.get("requestDeleteRange")
            if put is not None:
                self._put(put)
            elif self.pairs.pop(base64.b64decode(delete["key"]), None) is not None:
                self.revision += 1
        return {"succeeded": True}

    def _holds(self, compare: Json) -> bool:
        assert compare["result"] == "EQUAL"
        pair = self.pairs.get(base64.b64decode(compare["key"]))
        if compare["target"] == "CREATE":
            return int(compare["create_revision"]) == (0 if pair is None else pair.created)
        return int(compare["mod_revision"]) == (0 if pair is None else pair.changed)

    def _put(self, put: Mapping[str, str]) -> None:
        lease = int(put.get("lease", 0))
        if lease and lease not in self.leases:
            raise _Refused("etcdserver: requested lease not found", _NOT_FOUND)
        self.revision += 1
        key = base64.b64decode(put["key"])
        before = self.pairs.get(key)
        created = self.revision if before is None else before.created
        self.pairs[key] = _Pair(put["value"], created, self.revision, lease)

    def _grant(self, asked: Json) -> Json:
        id_, seconds = self._next_lease, float(asked["TTL"])
        self._next_lease += 1
        self.leases[id_] = _Lease(seconds, clock.monotonic() + seconds)
        return {"ID": str(id_), "TTL": asked["TTL"]}

    def _keep_alive(self, asked: Json) -> Json:
        lease = self.leases.get(int(asked["ID"]))
        if lease is None:
            return {"result": {"ID": asked["ID"]}}
        lease.until = clock.monotonic() + lease.seconds
        return {"result": {"ID": asked["ID"], "TTL": str(int(lease.seconds))}}

    def _revoke(self, asked: Json) -> Json:
        if int(asked["ID"]) not in self.leases:
            raise _Refused("etcdserver: requested lease not found", _NOT_FOUND)
        self._end(int(asked["ID"]))
        return {}


class EtcdMember:
    """A process of etcd: `async with EtcdMember(...)`."""

    def __init__(self, world: World, etcd: Etcd) -> None:
        self._world = world
        self._etcd = etcd
        self._server: Any = None
        self._expiring: asyncio.Task[None]

    async def __aenter__(self) -> Self:
        process = self._world.current
        assert process is not None
        self._etcd.joins(process)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Connection(self._etcd, lambda: process.steps.uniform(*_WORKS)),
            process.machine.address,
            PORT,
        )
        self._expiring = asyncio.create_task(self._expire())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._expiring.cancel()
        self._server.close()

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(_LOOK)
            self._etcd.expire()


class Connection(asyncio.Protocol):
    """HTTP/1.1, one request at a time. ``works`` has the seconds that the next request takes."""

    def __init__(self, etcd: Etcd, works: Callable[[], float]) -> None:
        self._etcd = etcd
        self._works = works
        self._buffer = bytearray()
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, rest = bytes(self._buffer).partition(b"\r\n\r\n")
        if not found:
            return
        first, *lines = head.decode().split("\r\n")
        fields = {
            name.lower(): value for name, _, value in (line.partition(": ") for line in lines)
        }
        size = int(fields["content-length"])
        if len(rest) < size:
            return
        self._buffer = bytearray(rest[size:])
        path = first.split(" ")[1].removeprefix("/v3/")
        asked = json.loads(rest[:size])
        asyncio.get_running_loop().call_later(self._works(), self._answer, path, asked)

    def _answer(self, path: str, asked: Json) -> None:
        try:
            status, answer = "200 OK", self._etcd.answer(path, asked)
        except _Refused as error:
            text, code = error.args
            status, answer = "404 Not Found", {"error": text, "message": text, "code": code}
        body = json.dumps(answer).encode()
        self._transport.write(
            f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
