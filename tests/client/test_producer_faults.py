"""A producer that stays away from a broker that fails, with scripted brokers."""

import asyncio
from collections import Counter

from mq.client.latency import FaultTolerance
from mq.client.producer import Producer
from mq.protocol.message import Message
from tests.client.scripted import name_server, refuses, scripted, stores


def ask(faults: FaultTolerance | None) -> Counter[str]:
    """How often each broker is asked by 20 sends; "bad" refuses everything."""
    asked: Counter[str] = Counter()

    async def scenario() -> None:
        async with (
            scripted(stores("good", asked)) as good,
            scripted(refuses("bad", asked)) as bad,
            scripted(name_server({"good": good, "bad": bad})) as namesrv,
            Producer(namesrv, "senders", faults=faults) as producer,
        ):
            for number in range(20):
                result = await producer.send(Message("topic", b"%d" % number))
                assert result.queue.broker_name == "good"

    asyncio.run(scenario())
    return asked


def test_a_broker_that_fails_is_tried_again_and_again_without_fault_tolerance() -> None:
    asked = ask(None)
    assert asked["good"] == 20
    assert asked["bad"] > 2


def test_a_broker_that_has_failed_is_not_asked_again_for_a_while() -> None:
    assert ask(FaultTolerance()) == {"good": 20, "bad": 1}
