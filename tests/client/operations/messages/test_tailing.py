import asyncio
import gc
import time
import tracemalloc
import zlib

import pytest

from mq.client.errors import RouteNotFound
from mq.client.operations.messages import following, tailing
from mq.client.operations.messages.choice import Choice
from mq.client.operations.messages.search import Budget, Search, SearchQuery
from mq.client.operations.messages.tailing import KEPT_BYTES, Tail, TailUpdate
from mq.client.transport.session import Session
from mq.protocol.message import Message
from mq.testing import RunningBroker
from tests.client.clusters import TOPIC, Cluster, cluster
from tests.client.compressed import said_to_be_compressed
from tests.client.scenarios import opened
from tests.waiting import until


async def until_seen(tail: Tail, count: int) -> list[TailUpdate]:
    """Look until so many messages have matched."""
    looks: list[TailUpdate] = []
    async with asyncio.timeout(60):
        while not looks or looks[-1].matched < count:
            looks.append(await tail.look(1))
    return looks


def tasks() -> list["asyncio.Task[object]"]:
    """Those of whoever follows a topic. Others come and go by themselves."""
    files = {following.__file__, tailing.__file__}
    found = [(task, getattr(task.get_coro(), "cr_code", None)) for task in asyncio.all_tasks()]
    return [task for task, code in found if code is not None and code.co_filename in files]


def bodies(looks: list[TailUpdate]) -> list[bytes]:
    return [hit.message.body for look in looks for hit in look.hits]


@opened(cluster)
async def test_messages_are_seen_as_they_come(made: Cluster) -> None:
    await made.send(b"before")
    async with Tail(made.session, Choice(TOPIC)) as tail:
        assert (await tail.look(0)).hits == []
        await made.send(b"one", b"two")
        looks = await until_seen(tail, 2)
    assert bodies(looks) == [b"one", b"two"]
    assert (looks[-1].matched, looks[-1].dropped) == (2, 0)


@opened(cluster)
async def test_it_can_begin_with_the_last_ones(made: Cluster) -> None:
    await made.send(b"1", b"2", b"3")
    async with Tail(made.session, Choice(TOPIC), last=2) as tail:
        assert sorted(bodies(await until_seen(tail, 2))) == [b"2", b"3"]


@opened(cluster)
async def test_filters_leave_the_others_out(made: Cluster) -> None:
    async with Tail(made.session, Choice(TOPIC, tags="yes"), "needle") as tail:
        await made.send(b"needle 1", b"hay", tag="yes")
        await made.send(b"needle 2", tag="no")
        await made.send(b"a needle 3", b"x" * 5000 + b"needle", tag="yes")
        looks = await until_seen(tail, 3)
    found = [hit for look in looks for hit in look.hits]
    assert [hit.message.body[:10] for hit in found] == [b"needle 1", b"a needle 3", b"x" * 10]
    assert (found[-1].size, len(found[-1].message.body)) == (5006, KEPT_BYTES)


@opened(cluster)
async def test_who_looks_seldom_gets_the_newest_and_hears_how_many_were_dropped(
    made: Cluster,
) -> None:
    async with Tail(made.session, Choice(TOPIC), most=10) as tail:
        await made.send(*[b"%d" % number for number in range(100)])
        async with asyncio.timeout(30):
            while tail._matched < 100:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        look = await tail.look(1)
    assert (look.matched, look.dropped, len(look.hits)) == (100, 90, 10)
    assert set(bodies([look])) <= {b"%d" % number for number in range(50, 100)}
    assert look.rate > 0


@opened(cluster)
async def test_a_rate_is_of_seconds_and_not_of_the_moment_of_a_batch(made: Cluster) -> None:
    async with Tail(made.session, Choice(TOPIC)) as tail:
        await made.send(b"alone")
        look = (await until_seen(tail, 1))[-1]
        assert 0 < look.rate <= 1


@opened(cluster)
async def test_an_unknown_topic_cannot_be_followed(made: Cluster) -> None:
    with pytest.raises(RouteNotFound):
        async with Tail(made.session, Choice("unknown")):
            raise AssertionError
    assert tasks() == []


@opened(cluster)
async def test_what_is_closed_leaves_nothing(made: Cluster) -> None:
    async with Tail(made.session, Choice(TOPIC)) as tail:
        await made.send(b"1")
        await until_seen(tail, 1)
        assert len(tasks()) > 1
    assert tasks() == []
    table = await made.admin.all_consumer_offsets(made.pair.broker.address)
    assert [name for name in table if name.startswith(f"{TOPIC}@")] == []


@opened(cluster)
async def test_who_is_cancelled_twice_leaves_nothing_either(made: Cluster) -> None:
    entered = asyncio.Event()

    async def follow() -> None:
        async with Tail(made.session, Choice(TOPIC)) as tail:
            entered.set()
            await tail.look(60)

    task = asyncio.ensure_future(follow())
    await entered.wait()
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0)
    await asyncio.gather(task, return_exceptions=True)
    await until(lambda: not tasks())


def test_a_broker_that_comes_back_is_followed_again(mq_broker: RunningBroker) -> None:
    mq_broker.create_topic(TOPIC)

    async def scenario() -> None:
        async with Session(mq_broker.name_server) as session:
            async with Tail(session, Choice(TOPIC)) as tail:
                await asyncio.to_thread(mq_broker.send, TOPIC, b"before")
                assert bodies(await until_seen(tail, 1)) == [b"before"]
                await asyncio.to_thread(mq_broker.restart)
                await asyncio.to_thread(mq_broker.send, TOPIC, b"after")
                assert bodies(await until_seen(tail, 2)) == [b"after"]

    asyncio.run(scenario())


@pytest.mark.long
@opened(cluster)
async def test_two_thousand_a_second_do_not_grow(made: Cluster) -> None:
    """Tail for one minute, and read the result five times a second."""
    seconds = 60
    async with Tail(made.session, Choice(TOPIC)) as tail:
        late: list[int] = []

        async def send() -> None:
            began = time.monotonic()
            for tick in range(seconds * 20):
                await asyncio.gather(
                    *(made.producer.send(Message(TOPIC, b"%01024d" % n)) for n in range(100))
                )
                await asyncio.sleep(max(0, began + (tick + 1) / 20 - time.monotonic()))

        sending = asyncio.ensure_future(send())
        sizes = []
        tracemalloc.start()
        while not sending.done():
            look = await tail.look(1)
            now = int(time.time() * 1000)
            late += [now - hit.message.store_timestamp for hit in look.hits[-1:]]
            await asyncio.sleep(0.2)
            gc.collect(0)
            sizes.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
        await sending
        late.sort()
        print(
            f"{look.matched} messages, {look.dropped} dropped; newest seen after "
            f"{late[len(late) // 2]} ms, p99 {late[len(late) * 99 // 100]} ms; "
            f"{sizes[len(sizes) // 3]} then {sizes[-1]} bytes"
        )
        assert look.matched > seconds * 2000 * 0.9
        assert late[len(late) // 2] < 300


@opened(cluster)
async def test_compressed_bodies_are_followed_and_searched_in_little_memory(made: Cluster) -> None:
    size, count = 15_000_000, 16
    packed = zlib.compress(bytes(size))
    address = made.pair.broker.address
    async with Tail(made.session, Choice(TOPIC), most=count) as tail:
        tracemalloc.start()
        try:
            await made.session.all(
                [
                    made.session.call(address, said_to_be_compressed(TOPIC, packed, queues=4))
                    for _ in range(count)
                ]
            )
            looks = await until_seen(tail, count)
            followed = tracemalloc.get_traced_memory()[1]
            tracemalloc.reset_peak()
            wanted = SearchQuery(Choice(TOPIC), "absent")
            found = await Search(
                made.session, wanted, Budget(bytes=2**40, seconds=60), keep=1024
            ).run()
            searched = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert [hit.size for look in looks for hit in look.hits] == [size] * count
    assert (found.looked, found.hits) == (count, [])
    assert max(followed, searched) < 4 * size
