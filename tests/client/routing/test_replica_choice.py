"""The choice of the replica that is read."""

import pytest

from mq.client.pull.pull_consumer import PullConsumer, PullStatus
from mq.client.routing.replica_choice import AWAY_SECONDS, ReplicaChoice
from mq.client.transport.session import Session
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Handler
from mq.protocol.bodies import BrokerData, MessageQueue, TopicRouteData
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.headers.pull import PullMessageResponseHeader
from tests.client.scripted import hang_up, scripted, silent
from tests.client.tube.virtual_time import run_fast

QUEUE = MessageQueue("topic", "a", 0)
OTHER = MessageQueue("topic", "a", 1)
MASTER, SLAVE, SECOND = "10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"


def route(**addresses: str) -> TopicRouteData:
    by_id = {int(name[1:]): address for name, address in addresses.items()}
    broker = BrokerData(cluster="c", broker_name="a", broker_addrs=by_id)
    return TopicRouteData(queue_datas=[], broker_datas=[broker], filter_server_table={})


PAIR = route(_0=MASTER, _1=SLAVE)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_master_is_read_until_another_replica_is_suggested() -> None:
    choice = ReplicaChoice("g")
    assert choice.choose(PAIR, QUEUE) == MASTER
    choice.suggest(QUEUE, 1, MASTER)
    assert choice.choose(PAIR, QUEUE) == SLAVE
    assert choice.choose(PAIR, OTHER) == MASTER
    choice.suggest(QUEUE, 0, SLAVE)
    assert choice.choose(PAIR, QUEUE) == MASTER


def test_a_missing_replica_is_replaced_by_the_next_or_any_other() -> None:
    choice = ReplicaChoice("g")
    choice.suggest(QUEUE, 1, MASTER)
    assert choice.choose(route(_0=MASTER, _2=SECOND), QUEUE) == SECOND
    assert choice.choose(route(_0=MASTER, _3=SECOND), QUEUE) == MASTER
    assert choice.choose(route(_1=SLAVE), OTHER) == SLAVE
    assert choice.choose(route(), OTHER) is None


def test_an_unreachable_replica_is_avoided_for_a_while() -> None:
    clock = Clock()
    choice = ReplicaChoice("g", clock)
    choice.unreachable(MASTER, OSError("refused"))
    assert choice.choose(PAIR, QUEUE) == SLAVE
    assert choice.choose(PAIR, OTHER) == SLAVE
    clock.now += AWAY_SECONDS
    assert choice.choose(PAIR, QUEUE) == MASTER


def test_a_replica_that_answers_again_is_used_at_once() -> None:
    choice = ReplicaChoice("g")
    choice.unreachable(MASTER, OSError("refused"))
    choice.suggest(OTHER, 0, MASTER)
    assert choice.choose(PAIR, QUEUE) == MASTER


def test_if_no_replica_is_reachable_all_are_tried() -> None:
    choice = ReplicaChoice("g")
    choice.unreachable(MASTER, OSError("refused"))
    choice.unreachable(SLAVE, OSError("refused"))
    assert choice.choose(PAIR, QUEUE) == MASTER
    assert choice.choose(PAIR, QUEUE, {MASTER}) == SLAVE
    assert choice.choose(PAIR, QUEUE, {MASTER, SLAVE}) is None


def answers(request: Command, channel: Channel) -> Command:
    header = PullMessageResponseHeader(
        suggest_which_broker_id=0, next_begin_offset=7, min_offset=0, max_offset=7
    )
    return request.reply(ResponseCode.PULL_NOT_FOUND, header.encode())


@pytest.mark.parametrize("master", [silent, hang_up])
def test_a_slave_replaces_a_master_that_does_not_answer(master: Handler) -> None:
    async def main() -> None:
        pull = int(RequestCode.PULL_MESSAGE)
        async with scripted({pull: master}) as first, scripted({pull: answers}) as second:

            def routes(request: Command, channel: Channel) -> Command:
                return request.reply(body=route(_0=first, _1=second).encode())

            names = {int(RequestCode.GET_ROUTEINFO_BY_TOPIC): routes}
            async with scripted(names) as address, Session(address, timeout=0.3) as session:
                async with PullConsumer(session, "g") as consumer:
                    result = await consumer.pull(QUEUE, 7)
                    assert (result.status, result.next_offset) == (PullStatus.NO_NEW, 7)

    run_fast(main())
