"""Reading all that is there, at the end, and holding it against the model."""

from mq.client import PullConsumer, Session
from mq.client.admin import Admin
from mq.client.errors import RouteNotFound
from mq.protocol.names import dead_letter_topic
from tests.simulation.cluster import BROKER_PORT, NAME_SERVER_PORT
from tests.simulation.model import Found, Place
from tests.simulation.model.content import damage, number_of
from tests.simulation.model.due import check_due
from tests.simulation.workloads.administering import SPACE
from tests.simulation.workloads.context import Context
from tests.simulation.world import EPOCH, START

_MOST_STANDS = 1  # pulls in a row that bring nothing
_GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"


async def look(context: Context) -> None:
    """Hold what the cluster holds against the model. Raises what reading raises."""
    model, found = context.model, Found()
    model.starts = {broker.name: broker.starts for broker in context.cluster.brokers}
    model.crashes = {broker.name: broker.crashes for broker in context.cluster.brokers}
    model.is_orderly = context.cluster.is_orderly
    if context.cluster.members:
        wrong = (one.name for one in context.cluster.brokers if not one.is_clock_right)
        model.clocks_differ.update(wrong)
    model.stops = [stop for broker in context.cluster.brokers for stop in broker.stops]
    await _look_at_registers(context)
    dead: dict[str, set[int]] = {}
    async with PullConsumer(
        context.name_servers, "reader", client=context.client("reader")
    ) as reader:
        for topic in sorted({sent.topic for sent in model.sent.values()}):
            await _read(context, reader, topic, found)
        for group in model.groups:
            dead[group] = await _numbers_in(context, reader, dead_letter_topic(group))
        given_up = await _numbers_in(context, reader, _GIVEN_UP)
    model.check_stored(found)
    check_due(model, found, dead, given_up, context.clocks(), not context.cluster.world.faults)


async def _read(context: Context, reader: PullConsumer, topic: str, found: Found) -> None:
    try:
        queues = await reader.queues(topic)
    except RouteNotFound:
        return  # nothing was ever stored: whatever was acknowledged is missing now
    right = {one.name for one in context.cluster.brokers if one.is_clock_right}
    for queue in queues:
        key = (topic, queue.broker_name, queue.queue_id)
        offset = found.minimums[key] = await reader.min_offset(queue)
        stands = 0
        end = await reader.max_offset(queue)
        while offset < end:
            result = await reader.pull(queue, offset)
            for message in result.messages:
                place = Place(*key, message.queue_offset)
                if place in found.numbers:
                    context.model.wrong(f"{place} was read twice")
                if text := damage(message, only_body=context.model.is_rotten):
                    context.model.wrong(f"{place}: {text} is not as it was sent")
                found.numbers[place] = number_of(message)
                found.stored_at[place] = message.store_timestamp
                if queue.broker_name in right:
                    found.stored[place] = message.store_timestamp / 1000 - EPOCH + START
            # A slave may have less than the master, which is asked the next time.
            stands = stands + 1 if result.next_offset <= offset else 0
            if stands > _MOST_STANDS:
                context.model.wrong(f"a pull of {queue} at {offset} goes nowhere")
                break
            offset = result.next_offset


async def _numbers_in(context: Context, reader: PullConsumer, topic: str) -> set[int]:
    found = Found()
    await _read(context, reader, topic, found)
    return set(found.numbers.values())


async def _look_at_registers(context: Context) -> None:
    registers, cluster = context.model.registers, context.cluster
    keys = registers.keys()
    if not keys:
        return
    async with Session(context.name_servers, context.client("reader")) as session:
        admin = Admin(session)
        for server in cluster.name_servers:
            address = f"{server.address}:{NAME_SERVER_PORT}"
            there = await admin.kv_list(address, SPACE)
            for key in keys:
                if key[:2] == ("key", server.name):
                    registers.check(key, there.get(key[2]))
        for broker in cluster.brokers:
            address = f"{broker.address}:{BROKER_PORT}"
            topics = (await admin.topic_configs(address)).topic_config_table
            groups = (await admin.subscription_groups(address)).subscription_group_table
            for key in keys:
                if key[:2] == ("topic", broker.name):
                    topic = topics.get(key[2])
                    registers.check(key, None if topic is None else topic.write_queue_nums)
                elif key[:2] == ("group", broker.name):
                    group = groups.get(key[2])
                    registers.check(key, None if group is None else group.retry_max_times)
