"""Pulls by plans: as long as nothing has changed that a plan was made from."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from mq.daemons import outgoing
from mq.daemons.broker.handlers import planned_pulls
from mq.daemons.channel import Channel
from mq.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from mq.protocol.codes import ResponseCode
from mq.protocol.command_reader import CommandReader
from mq.protocol.flags import Permission, PullSysFlag
from mq.protocol.frame import encode
from mq.protocol.native import native
from tests.daemons.broker.handlers.members import beat
from tests.daemons.broker.native_pair import Written
from tests.daemons.broker.pulls import TOPIC, PullBroker, bodies, numbered, pull, request, serve
from tests.daemons.peer import Peer

pytestmark = pytest.mark.skipif(native is None, reason="the native path is not built")

LARGE_FILES = {"mappedFileSizeCommitLog": "100000"}
Change = Callable[[PullBroker], Awaitable[object]]


def counted(broker: PullBroker) -> list[bool]:
    """Whether each pull that has a plan is answered by it, from now on."""
    planned, answers = broker.services.pulls.planned, list[bool]()
    answer = planned._answer

    def count(*arguments: object) -> bool:
        answers.append(answer(*arguments))  # type: ignore[arg-type]
        return answers[-1]

    planned._answer = count  # type: ignore[assignment, method-assign]
    return answers


def test_a_pull_like_one_before_is_answered_by_its_plan_and_commits(tmp_path: Path) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        answers = counted(broker)
        await broker.put(*numbered(5))
        flags = str(PullSysFlag.SUBSCRIPTION | PullSysFlag.COMMIT_OFFSET)
        for offset in range(4):
            command = request(offset, opaque=offset, sysFlag=flags, commitOffset=str(offset))
            reply = await pull(peer, command)
            assert bodies(reply) == numbered(5)[offset:]
            assert broker.stores.offsets.query("g", TOPIC, 0) == offset
        assert answers == [True] * 3
        counter = broker.stats.counters.group(TOPIC, "g", 0)
        assert (counter.messages, counter.pulls) == (5 + 4 + 3 + 2, 4)

    serve(tmp_path, script, **LARGE_FILES)


async def _forbid_topic(broker: PullBroker) -> None:
    config = TopicConfig(
        topic_name=TOPIC, read_queue_nums=4, write_queue_nums=4, perm=Permission.WRITE
    )
    await broker.stores.topics.update(config)


async def _forbid_group(broker: PullBroker) -> None:
    config = SubscriptionGroupConfig(group_name="g", consume_enable=False)
    await broker.stores.groups.update(config)


async def _forbid_broker(broker: PullBroker) -> None:
    broker.settings.update({"brokerPermission": "2"})


@pytest.mark.parametrize("forbid", [_forbid_topic, _forbid_group, _forbid_broker])
def test_a_pull_that_is_forbidden_since_is_refused(tmp_path: Path, forbid: Change) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        await broker.put(*numbered(3))
        answers = counted(broker)
        for _ in range(2):
            assert bodies(await pull(peer, request(0))) == numbered(3)
        await forbid(broker)
        assert (await pull(peer, request(0))).code == ResponseCode.NO_PERMISSION
        assert answers.count(True) == 1

    serve(tmp_path, script, **LARGE_FILES)


def test_a_topic_that_was_made_again_is_read_from_its_own_queue(tmp_path: Path) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        answers = counted(broker)
        await broker.put(b"old")
        for _ in range(2):
            assert bodies(await pull(peer, request(0))) == [b"old"]
        topics = broker.stores.topics
        await topics.delete(TOPIC, lambda: broker.stores.messages.delete_topic(TOPIC))
        assert (await pull(peer, request(0))).code == ResponseCode.TOPIC_NOT_EXIST
        await topics.update(TopicConfig(topic_name=TOPIC, read_queue_nums=4, write_queue_nums=4))
        await broker.put(b"new")
        for _ in range(2):
            assert bodies(await pull(peer, request(0))) == [b"new"]
        assert answers == [True, True]

    serve(tmp_path, script, **LARGE_FILES)


def test_what_a_group_wants_counts_from_its_next_pull_on(tmp_path: Path) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        answers = counted(broker)
        await broker.put(b"a", tag="a")
        await broker.put(b"b", tag="b")
        command = request(0, sysFlag="0")
        assert (await pull(peer, command)).code == ResponseCode.SUBSCRIPTION_NOT_EXIST
        async with Peer(broker.listener.port) as member:
            for version, (tag, found) in enumerate(
                (("a", [b"a"]), ("b", [b"b"]), ("*", [b"a", b"b"]))
            ):
                await beat(member, "c", TOPIC, version=version + 1, wanted=tag)
                for _ in range(2):
                    assert bodies(await pull(peer, command)) == found
            await beat(member, "c", "another", version=4)
            assert (await pull(peer, command)).code == ResponseCode.SUBSCRIPTION_NOT_EXIST
        assert answers == [True] * 5 + [False]

    serve(tmp_path, script, **LARGE_FILES)


class Filling(Written):
    """A transport whose peer takes so many replies."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._left = most
        self.on_full: Callable[[], None] = lambda: None

    def write(self, data: bytes | memoryview) -> None:
        super().write(data)
        self._left -= 1
        if not self._left:
            self.on_full()


def test_a_peer_that_is_stalled_in_the_middle_of_its_pulls_gets_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outgoing, "_JOINED", 0)  # each reply leaves by itself

    async def script(broker: PullBroker, peer: Peer) -> None:
        await broker.put(*numbered(3))
        assert bodies(await pull(peer, request(0))) == numbered(3)
        channel, transport = Channel(broker.listener, broker.listener.dispatcher), Filling(2)
        channel.connection_made(transport)  # type: ignore[arg-type]  # as much as is needed
        transport.on_full = channel.pause_writing
        channel.data_received(b"".join(encode(request(0, opaque=number)) for number in range(6)))
        sent = CommandReader().receive(transport.data)
        channel.connection_lost(None)
        assert [reply.opaque for reply in sent] == [0, 1]

    serve(tmp_path, script, **LARGE_FILES)


def test_filters_by_properties_are_in_memory_where_they_are_read_and_nowhere_else(
    tmp_path: Path,
) -> None:
    async def script(broker: PullBroker, peer: Peer) -> None:
        answers = counted(broker)
        await broker.put(*numbered(3))
        command = request(0, tags="a IS NULL", expressionType="SQL92")
        for _ in range(2):
            assert bodies(await pull(peer, command)) == numbered(3)
        assert answers == [True]
        (plan,) = broker.services.pulls.planned._plans.values()
        assert plan.expression is None

    serve(tmp_path, script, enablePropertyFilter="true", **LARGE_FILES)


def test_the_texts_of_plans_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planned_pulls, "_MOST_BYTES", 300)

    async def script(broker: PullBroker, peer: Peer) -> None:
        await broker.put(*numbered(3))
        for number in range(20):
            await pull(peer, request(0, subVersion=f"{number:03}"))
            plans = broker.services.pulls.planned._plans
            assert sum(map(len, plans)) < 400
        assert plans

    serve(tmp_path, script, **LARGE_FILES)
