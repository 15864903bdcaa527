"""The stand-in for etcd answers a controller's questions as etcd does."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path

from mq.daemons.controller import etcd as client
from mq.daemons.controller.etcd import EtcdError, NoLease, Pair
from tests.daemons.controller.etcd_server import EtcdServer
from tests.simulation.etcd import Connection, Etcd

Answers = list[object]


@asynccontextmanager
async def stand_in() -> AsyncIterator[str]:
    kept = Etcd()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(kept, lambda: 0.0), "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def outcome(call: Awaitable[object]) -> object:
    try:
        return await call
    except EtcdError as error:
        return type(error).__name__


async def story(etcd: client.Etcd) -> Answers:
    """What is answered, without the numbers that etcd chooses."""
    told: Answers = []
    revisions: list[int] = []
    leases: list[int] = []

    def seen(answer: object) -> object:
        if isinstance(answer, client.Txn):
            revisions.append(answer.revision)
            return answer.succeeded
        if isinstance(answer, list):
            return [seen(one) for one in answer]
        if isinstance(answer, Pair):
            lease = leases.index(answer.lease) if answer.lease else -1
            places = [revisions.index(one) for one in (answer.created, answer.changed)]
            return answer.key, answer.value, *places, lease
        return answer

    async def tell(call: Awaitable[object]) -> None:
        told.append(seen(await outcome(call)))

    new = {"/m/a": {"created": 0}}
    await tell(etcd.pairs("/m/"))
    await tell(etcd.put_if("/m/a", b"one", new))
    await tell(etcd.put_if("/m/a", b"two", new))
    await tell(etcd.get("/m/a"))
    first = revisions[0]
    await tell(etcd.put_if("/m/a", b"two", {"/m/a": {"changed": first, "created": first}}))
    await tell(etcd.put_if("/m/a", b"three", {"/m/a": {"changed": first}}))
    await tell(etcd.put_if("/m/b", b"", {"/m/none": {"changed": 0}}))
    await tell(etcd.put_if("/n/c", b"elsewhere", {}))
    await tell(etcd.pairs("/m/"))
    leases.append(await etcd.grant(60))
    await tell(etcd.put_if("/m/leased", b"x", {}, leases[0]))
    await tell(etcd.keep_alive(leases[0]))
    await tell(etcd.get("/m/leased"))
    await tell(etcd.revoke(leases[0]))
    await tell(etcd.get("/m/leased"))
    await tell(etcd.keep_alive(leases[0]))
    await tell(etcd.revoke(leases[0]))
    await tell(etcd.put_if("/m/leased", b"x", {}, leases[0]))
    await tell(etcd.put_if("/m/a", None, {"/m/a": {"changed": first}}))
    await tell(etcd.put_if("/m/a", None, {}))
    await tell(etcd.put_if("/m/a", None, {}))
    await tell(etcd.put_if("/m/a", b"again", new))
    await tell(etcd.pairs("/m/"))
    return told


def test_a_controller_is_answered_as_by_etcd(tmp_path: Path) -> None:
    async def told_by(url: str) -> Answers:
        async with client.Etcd([url]) as etcd:
            return await story(etcd)

    async def simulated() -> Answers:
        async with stand_in() as url:
            return await told_by(url)

    found = asyncio.run(simulated())
    assert NoLease.__name__ in found and False in found
    with EtcdServer(tmp_path) as server:
        assert found == asyncio.run(told_by(server.url))


def test_a_lease_that_is_not_kept_alive_ends_with_what_was_put_under_it() -> None:
    async def main() -> None:
        async with stand_in() as url, client.Etcd([url]) as etcd:
            lease = await etcd.grant(1)
            await etcd.put_if("/m/leader", b"x", {}, lease)
            while await etcd.get("/m/leader") is not None:  # noqa: ASYNC110 - a second, and a bit
                await asyncio.sleep(0.05)
            assert await outcome(etcd.keep_alive(lease)) == NoLease.__name__

    asyncio.run(main())
