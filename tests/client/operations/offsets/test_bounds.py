from mq.client.admin import Admin
from mq.client.operations.offsets.bounds import AT_ONCE, bounds
from mq.client.transport.session import Session
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Handler
from mq.protocol.bodies import MessageQueue, TopicOffset, TopicStatsTable
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from tests.client.scenarios import in_a_loop
from tests.client.scripted import scripted

QUEUES = [MessageQueue("T", "broker-a", number) for number in range(AT_ONCE + 4)]


@in_a_loop
async def test_queues_that_are_only_read_are_asked_for_side_by_side_some_at_a_time() -> None:
    """The broker answers when a whole part has come: to one request after the other it never
    would."""
    table = TopicStatsTable(offset_table={QUEUES[0]: TopicOffset(min_offset=3, max_offset=9)})
    waiting: list[tuple[Command, Channel]] = []
    parts = [2 * AT_ONCE, 2 * (len(QUEUES) - 1 - AT_ONCE)]

    def told(request: Command, channel: Channel) -> Command:
        return request.reply(0, None, table.encode())

    def held(request: Command, channel: Channel) -> None:
        waiting.append((request, channel))
        assert len(waiting) <= parts[0]
        if len(waiting) < parts[0]:
            return
        parts.pop(0)
        for one, at in reversed(waiting):
            least = one.code == RequestCode.GET_MIN_OFFSET
            number = int(one.fields["queueId"])
            at.send(one.reply(0, {"offset": str(number if least else 100 + number)}))
        waiting.clear()

    handlers: dict[int, Handler] = {
        RequestCode.GET_TOPIC_STATS_INFO: told,
        RequestCode.GET_MIN_OFFSET: held,
        RequestCode.GET_MAX_OFFSET: held,
    }
    async with scripted(handlers) as address, Session(address) as session:
        found = await bounds(Admin(session), address, "T", QUEUES)
    assert list(found) == QUEUES
    ends = [(found[queue].min_offset, found[queue].max_offset) for queue in QUEUES]
    assert ends == [(3, 9), *((number, 100 + number) for number in range(1, len(QUEUES)))]
