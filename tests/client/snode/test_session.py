"""Clients through snodes: where requests go, in which order, and what happens when one dies."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from mq.client import Producer, SnodeSession, TransactionProducer
from mq.client.errors import ClientError, RouteNotFound
from mq.client.hooks import RpcHook
from mq.client.producer.transactions import TransactionCheck, TransactionState
from mq.client.pull.pull_consumer import PullConsumer
from mq.daemons.dispatch import Handler
from mq.protocol.bodies import MessageQueue, SnodeClusterInfo
from mq.protocol.codes import RequestCode, SnodeCode
from mq.protocol.command import Command
from mq.protocol.message import Message
from tests.client.brokers import BROKER_NAME, served
from tests.client.scripted import closed_port, name_server, routes, scripted
from tests.client.snode.scripted_snode import BROKER, TOPIC, snodes_by_script
from tests.waiting import until

SEND = RequestCode.SEND_MESSAGE_V2


def test_sends_go_through_snodes_queue_by_queue_in_order() -> None:
    async def main() -> None:
        async with (
            snodes_by_script(2, queues=4) as stage,
            Producer(stage.namesrv, snode=True) as producer,
        ):
            queues = await producer.prepare(TOPIC)
            sends = [
                producer.submit(Message(TOPIC, b"%d" % number), queues[number % 4])
                for number in range(400)
            ]
            results = await asyncio.gather(*sends)
        assert all(result.queue.broker_name == BROKER for result in results)
        assert [snode.asked[SEND] for snode in stage.snodes] == [200, 200]
        for queue in queues:
            bodies = [int(message.body) for message in stage.queues.messages[queue]]
            assert bodies == sorted(bodies) and len(bodies) == 100

    asyncio.run(main())


def test_a_send_continues_at_the_other_snode_when_one_disconnects() -> None:
    async def main() -> None:
        async with (
            snodes_by_script(2, queues=2) as stage,
            Producer(stage.namesrv, snode=True) as producer,
        ):
            queues = await producer.prepare(TOPIC)
            for queue in queues:
                await producer.send(Message(TOPIC, b"before"), queue)
            first, _ = stage.snodes
            first.break_off()
            for number in range(20):
                await producer.send(Message(TOPIC, b"%d" % number))
            stored = [m.body for queue in queues for m in stage.queues.messages[queue]]
            assert Counter(stored) == Counter([b"before"] * 2 + [b"%d" % n for n in range(20)])

    asyncio.run(main())


def test_requests_about_queues_go_to_the_snode_and_name_their_broker() -> None:
    seen: list[tuple[str, int, str | None]] = []

    class Noting(RpcHook):
        def before_request(self, address: str, command: Command) -> None:
            fields = command.fields
            seen.append((address, command.code, fields.get("enodeName") or fields.get("n")))

    async def main() -> None:
        async with (
            snodes_by_script() as stage,
            PullConsumer(stage.namesrv, snode=True, hooks=[Noting()]) as consumer,
        ):
            (queue,) = await consumer.queues(TOPIC)
            await consumer.max_offset(queue)
            await consumer.commit(queue, 5)
            assert await consumer.committed(queue) == 5
            snode = stage.snode.address
            assert (stage.namesrv, int(SnodeCode.GET_SNODE_CLUSTER_INFO), None) in seen
            assert {one for one in seen if one[0] != stage.namesrv} == {
                (snode, int(code), BROKER)
                for code in (
                    RequestCode.GET_MAX_OFFSET,
                    RequestCode.UPDATE_CONSUMER_OFFSET,
                    RequestCode.QUERY_CONSUMER_OFFSET,
                )
            }

    asyncio.run(main())


def test_requests_that_snodes_do_not_serve_go_to_brokers(tmp_path: Path) -> None:
    async def main() -> None:
        async with served(tmp_path) as there, snodes_by_script() as stage:
            handlers = name_server({BROKER_NAME: there.broker.address})
            handlers[SnodeCode.GET_SNODE_CLUSTER_INFO] = lambda request, _: request.reply(
                0, None, SnodeClusterInfo().encode()
            )
            async with scripted(handlers) as namesrv, SnodeSession(namesrv) as session:
                await session.route(TOPIC)
                code = RequestCode.GET_BROKER_RUNTIME_INFO
                response = await session.call(there.broker.address, Command(code))
                assert response.code == 0
                with pytest.raises(RouteNotFound, match="no name server knows a snode"):
                    async with PullConsumer(session, snode=True) as consumer:
                        await consumer.max_offset(MessageQueue(TOPIC, BROKER_NAME, 0))
            assert not stage.snode.asked

    asyncio.run(main())


def test_a_snode_that_starts_later_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mq.client.snode.session.SNODES_RETRY_SECONDS", 0.02)
    tables = [SnodeClusterInfo()]

    async def main() -> None:
        async with snodes_by_script() as stage:

            def answer(request: Command, channel: object) -> Command:
                return request.reply(0, None, tables[-1].encode())

            handlers: dict[int, Handler] = {
                RequestCode.GET_ROUTEINFO_BY_TOPIC: routes({BROKER: closed_port()}, 1),
                SnodeCode.GET_SNODE_CLUSTER_INFO: answer,
            }
            async with scripted(handlers) as namesrv, Producer(namesrv, snode=True) as producer:
                with pytest.raises(RouteNotFound):
                    await producer.send(Message(TOPIC, b"too early"))
                session = producer.session
                assert isinstance(session, SnodeSession)
                async with SnodeSession(stage.namesrv) as other:
                    response = await other.call_name_server(
                        Command(SnodeCode.GET_SNODE_CLUSTER_INFO)
                    )
                tables.append(SnodeClusterInfo.decode(response.body))
                await until(lambda: session.snodes == (stage.snode.address,))
                await producer.send(Message(TOPIC, b"now"))
                tables.append(SnodeClusterInfo())  # a name server that has just started
                await session._find_snodes()
                await producer.send(Message(TOPIC, b"still"))

    asyncio.run(main())


async def unknown(question: TransactionCheck) -> TransactionState:
    return TransactionState.UNKNOWN


def test_transactions_and_requests_with_replies_are_refused() -> None:
    with pytest.raises(ClientError, match="transactions need a session to brokers"):
        TransactionProducer("127.0.0.1:9", "g", unknown, snode=True)

    async def main() -> None:
        async with (
            snodes_by_script() as stage,
            Producer(stage.namesrv, snode=True) as producer,
        ):
            with pytest.raises(ClientError, match="snodes do not forward replies"):
                await producer.request(Message(TOPIC, b"?"))

    asyncio.run(main())
