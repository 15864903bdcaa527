"""Administrators: topics and groups created, changed and deleted, also several at the same moment;
keys of name servers; offsets reset; queries of everything.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable

from mq.client import Session
from mq.client.admin import Admin
from mq.client.errors import BrokerError, MQError
from mq.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from tests.simulation.cluster import BROKER_PORT, NAME_SERVER_PORT, Daemon
from tests.simulation.model import Group
from tests.simulation.workloads.context import Context, Workload

_NAMES = ("A", "B", "C")
SPACE = "simulated"  # of keys at name servers
#: What may be changed while a broker runs, and what is put there.
_SETTINGS = {"defaultQueryMaxNum": (16, 32, 48), "maxMsgsNumBatch": (32, 64)}


def change(pause: float) -> Workload:
    """Topics, groups and keys change; mostly one after the other, at times several at once."""

    async def run(context: Context) -> None:
        context.model.registers.abandoned()  # if it was here before
        async with Session(context.name_servers, context.client("admin")) as session:
            admin = Admin(session)
            changer = _Changer(context, admin)
            while context.now < context.until:
                count = context.random.choice((1, 1, 2, 3))
                await asyncio.gather(*(changer.change() for _ in range(count)))
                await asyncio.sleep(context.random.uniform(0.2, 1.8) * pause)

    return run


class _Changer:
    def __init__(self, context: Context, admin: Admin) -> None:
        self._context, self._admin = context, admin

    async def change(self) -> None:
        random, admin = self._context.random, self._admin
        name, size = random.choice(_NAMES), random.randint(1, 8)
        is_new = random.random() < 0.65
        kind = random.choice(("topic", "group", "key"))
        if kind == "key":
            server = random.choice(self._context.cluster.name_servers)
            address = f"{server.address}:{NAME_SERVER_PORT}"
            value = str(size) if is_new else None
            await self._set(("key", server.name, name), value, (
                admin.put_kv_at(address, SPACE, name, str(size)) if is_new
                else admin.delete_kv_at(address, SPACE, name)
            ))  # fmt: skip
            return
        broker = random.choice(self._context.cluster.brokers)
        address = _address(broker)
        if kind == "topic":
            config = TopicConfig(topic_name=name, read_queue_nums=size, write_queue_nums=size)
            work = (
                admin.create_topic(address, config)
                if is_new
                else admin.delete_topic_in_broker(address, name)
            )
        else:
            group = SubscriptionGroupConfig(group_name=name, retry_max_times=size)
            work = (
                admin.update_subscription_group(address, group)
                if is_new
                else admin.delete_subscription_group(address, name)
            )
        await self._set((kind, broker.name, name), size if is_new else None, work)

    async def _set(self, key: tuple[str, str, str], value: Hashable, work: Awaitable[None]) -> None:
        registers = self._context.model.registers
        self._context.model.requests += 1
        registers.begin(key, value)
        try:
            await work
        except BrokerError:  # it may have been done in memory, and not on the disk
            registers.unanswered(key, value)
        except MQError:
            registers.unanswered(key, value)
        else:
            registers.acknowledged(key, value, self._context.now)


def reset(group: Group, pause: float) -> Workload:
    """Send a group back to where its topic was some seconds ago, now and then."""

    async def run(context: Context) -> None:
        async with Session(context.name_servers, context.client("admin")) as session:
            admin = Admin(session)
            while True:
                await asyncio.sleep(context.random.uniform(0.5, 1.5) * pause)
                if context.now >= context.until:
                    return
                broker = context.random.choice(context.cluster.brokers)
                at = int(context.wall - context.random.uniform(0.0, 20.0) * 1000)
                context.model.requests += 1
                group.resets.append(context.now)
                try:
                    await admin.reset_offset(
                        _address(broker), group.topic, group.name, at, force=False
                    )
                except MQError as error:
                    context.tell(f"reset: {error!r}")
                context.cluster.world.tell("resetter", f"{group.name} goes back to {at}")

    return run


def watch(pause: float) -> Workload:
    """Ask for all that can be asked for, and change settings."""

    async def run(context: Context) -> None:
        async with Session(context.name_servers, context.client("admin")) as session:
            admin = Admin(session)
            # What is expired begins at offset 0 again, as in Java.
            questions = [*_QUESTIONS, *[_clean_queues] * context.model.keeps]
            while context.now < context.until:
                broker = context.random.choice(context.cluster.brokers)
                context.model.requests += 1
                try:
                    await context.random.choice(questions)(context, admin, _address(broker))
                except MQError as error:
                    context.tell(f"watch: {error!r}")
                await asyncio.sleep(context.random.uniform(0.2, 1.8) * pause)

    return run


async def _configure(context: Context, admin: Admin, address: str) -> None:
    name = context.random.choice(sorted(_SETTINGS))
    value = str(context.random.choice(_SETTINGS[name]))
    await admin.update_broker_config(address, {name: value})


async def _clean_queues(_: Context, admin: Admin, address: str) -> None:
    await admin.clean_expired_consume_queues(address)


_Question = Callable[[Context, Admin, str], Awaitable[object]]
_QUESTIONS: list[_Question] = [
    _configure,
    lambda _, admin, __: admin.cluster_info(),
    lambda _, admin, __: admin.topic_list(),
    lambda _, admin, address: admin.broker_runtime_info(address),
    lambda _, admin, address: admin.broker_config(address),
    lambda _, admin, address: admin.all_consumer_offsets(address),
    lambda _, admin, address: admin.topic_configs(address),
    lambda _, admin, address: admin.topic_stats(address, "Orders"),
    lambda _, admin, address: admin.consume_stats(address, "billing"),
    lambda _, admin, address: admin.delete_expired_commit_log(address),
    lambda _, admin, __: admin.topic_route("Orders"),
    lambda context, admin, _: admin.find_by_key("Orders", f"k{context.random.randint(0, 50)}"),
]


def _address(broker: Daemon) -> str:
    return f"{broker.address}:{BROKER_PORT}"
