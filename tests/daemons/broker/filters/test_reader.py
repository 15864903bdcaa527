"""Expressions of requests are parsed by a thread: other clients are served meanwhile."""

import asyncio
import time
from pathlib import Path
from statistics import median

from mq.protocol.bodies import CheckClientRequestBody, SubscriptionData
from mq.protocol.codes import RequestCode, ResponseCode
from tests.daemons.broker.harness import Harness, create_topic, send, serve
from tests.daemons.broker.running import broker_on
from tests.daemons.peer import Peer


def long_expression(number: int) -> str:
    """A new expression of 16 KB."""
    return f"b = {number} OR " + " OR ".join(f"a = {n}" for n in range(100_000, 101_100))


def check_of(text: str) -> bytes:
    wanted = SubscriptionData(topic="T", sub_string=text, expression_type="SQL92")
    return CheckClientRequestBody(client_id="c", group="g", subscription_data=wanted).encode()


def test_others_are_served_while_long_expressions_are_parsed(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            broker_on(tmp_path, enablePropertyFilter="true") as broker,
            Peer(broker.port) as honest,
            Peer(broker.port) as hostile,
        ):
            await create_topic(honest, "T")
            code = RequestCode.CHECK_CLIENT_CONFIG
            assert (await hostile.ask(code, {}, check_of(long_expression(0)))).code == 0

            async def flood() -> list[int]:
                texts = [long_expression(number) for number in range(1, 9)]
                return [(await hostile.ask(code, {}, check_of(text))).code for text in texts]

            flooding = asyncio.create_task(flood())
            waits = []
            while not flooding.done():
                began = time.perf_counter()
                await send(honest, "T", b"x")
                waits.append(time.perf_counter() - began)
            assert set(await flooding) == {ResponseCode.SUCCESS}
            assert len(waits) > 20
            assert (
                median(waits) < 0.1
            )  # parsing one takes longer, and they are parsed one after the other

    asyncio.run(main())


def test_a_pull_with_a_new_expression_is_answered_once_it_is_parsed(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        await create_topic(peer, "T")
        await send(peer, "T", b"x", properties="a\x011")
        fields = {"consumerGroup": "g", "topic": "T", "queueId": "0", "queueOffset": "0"}
        fields |= {"maxMsgNums": "1", "sysFlag": "4", "commitOffset": "0", "subVersion": "0"}
        fields |= {"suspendTimeoutMillis": "0", "expressionType": "SQL92"}
        for text, code in (
            (f"{long_expression(10)} OR a = 1", ResponseCode.SUCCESS),
            ("a = = 1", ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ):
            reply = await peer.ask(RequestCode.PULL_MESSAGE, fields | {"subscription": text})
            assert reply.code == code

    serve(tmp_path, script, enablePropertyFilter="true")
