"""Requests of brokers to a consumer: resets and queries of its state."""

import asyncio

from mq.client.consumer.consumer import Consumer
from mq.protocol.bodies import (
    CMResult,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    GetConsumerStatusBody,
    MessageQueue,
    ResetOffsetBody,
)
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.message import StoredMessage, encode_record
from tests.client.clusters import GROUP, TOPIC, Cluster, cluster, numbers
from tests.waiting import until


async def push(there: Cluster, consumer: Consumer, request: Command) -> Command | None:
    """Return the consumer's answer to a request of its broker."""
    handler = consumer.session._handlers[request.code]
    answer = handler(request, there.pair.broker.address)
    return answer if answer is None or isinstance(answer, Command) else await answer


def test_a_reset_queue_continues_at_the_new_offset_and_commits_it() -> None:
    async def scenario() -> None:
        got: list[bytes] = []

        async def listen(message: StoredMessage) -> None:
            got.append(message.body)

        async with cluster(queues=1) as there:
            await there.send(*numbers(5))
            async with there.consumer(listener=listen) as consumer:
                await until(lambda: len(got) == 5)
                body = ResetOffsetBody(offset_table={MessageQueue(TOPIC, "broker-a", 0): 3})
                fields = {"topic": TOPIC, "group": GROUP, "timestamp": "0", "isForce": "true"}
                code = RequestCode.RESET_CONSUMER_CLIENT_OFFSET
                assert await push(there, consumer, Command(code, fields, body.encode())) is None
                await until(lambda: len(got) == 7)
        assert sorted(got) == sorted([*numbers(5), b"3", b"4"])

    asyncio.run(scenario())


def test_a_consumer_answers_queries_of_its_state_for_its_own_group() -> None:
    async def scenario() -> None:
        async def listen(message: StoredMessage) -> None:
            if message.body == b"bad":
                raise ValueError("bad body")

        async with cluster(queues=1) as there, there.consumer(listener=listen) as consumer:
            await until(lambda: len(consumer.assigned) == 2)
            await there.send(b"x")
            fields = {"consumerGroup": GROUP, "clientId": "c", "jstackEnable": "true"}
            asked = Command(RequestCode.GET_CONSUMER_RUNNING_INFO, fields)
            state = await push(there, consumer, asked)
            assert state is not None
            info = ConsumerRunningInfo.decode(bytes(state.body))
            assert {queue.topic for queue in info.mq_table} == {TOPIC, f"%RETRY%{GROUP}"}
            assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
            assert "MainThread" in (info.jstack or "")

            fields = {"topic": TOPIC, "group": GROUP}
            code = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
            status = await push(there, consumer, Command(code, fields))
            assert status is not None
            table = GetConsumerStatusBody.decode(bytes(status.body)).message_queue_table
            assert list(table) == [MessageQueue(TOPIC, "broker-a", 0)]

            for body, result in ((b"good", "CR_SUCCESS"), (b"bad", "CR_THROW_EXCEPTION")):
                request = Command(
                    RequestCode.CONSUME_MESSAGE_DIRECTLY,
                    {"consumerGroup": GROUP},
                    encode_record(StoredMessage(TOPIC, body)),
                )
                answer = await push(there, consumer, request)
                assert answer is not None
                outcome = ConsumeMessageDirectlyResult.decode(bytes(answer.body))
                assert outcome.consume_result is CMResult[result]

            request = Command(
                RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "x", "clientId": "y"}
            )
            refusal = await push(there, consumer, request)
            assert refusal is not None
            assert refusal.code == ResponseCode.SYSTEM_ERROR

    asyncio.run(scenario())
