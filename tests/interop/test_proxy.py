"""Java's proxy 5.5.0 in front of our broker, with the Java gRPC client."""

import asyncio
from pathlib import Path

import pytest

from mq.client.admin import Admin
from mq.client.transport.session import Session
from mq.protocol.bodies import TopicConfig
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from tests.interop.jvm import require_java
from tests.interop.proxy import GrpcProgram, JavaProxy
from tests.interop.tools import our_daemons

pytestmark = pytest.mark.java

TOPICS = ("Normal", "Fifo", "Delay", "Transaction")


async def set_up(namesrv: str, broker: str) -> None:
    """Create a topic of each message type, and make checks of transactions frequent."""
    async with Session(namesrv) as session:
        for topic in TOPICS:
            config = TopicConfig(topic_name=topic, read_queue_nums=4, write_queue_nums=4)
            config.attributes = {"+message.type": topic.upper()}
            await Admin(session).create_topic(broker, config)
        settings = (
            b"transactionCheckInterval=1000\ntransactionTimeOut=3000\ntransactionCheckMax=1000\n"
        )
        await session.call(broker, Command(RequestCode.UPDATE_BROKER_CONFIG, None, settings))


def test_grpc_clients_send_and_consume_all_message_types_through_a_java_proxy(
    tmp_path: Path,
) -> None:
    require_java()
    with our_daemons(tmp_path) as (namesrv, broker):
        asyncio.run(set_up(namesrv, broker))
        with (
            JavaProxy("5.5.0", tmp_path, namesrv) as proxy,
            GrpcProgram("5.2.0", proxy.address, tmp_path) as program,
        ):
            program.wait_for_line("PUSH Normal plain 1 {own=x}")
            program.wait_for_line("PUSH Normal again 1 ")
            program.wait_for_line("PUSH Normal again 2 ", timeout=60)
            fifo = program.wait_for_line("SIMPLE Fifo", count=3)
            assert [line.split()[2] for line in fifo] == ["1", "2", "3"]
            program.wait_for_line("SIMPLE Delay late 1 ")
            program.wait_for_line("SIMPLE Transaction committed 1 ")
            program.wait_for_line("CHECK Transaction open ")
            program.wait_for_line("SIMPLE Transaction open 1 ")
            assert not any("rolled-back" in line for line in program.lines)
            assert not any(line.startswith("FAILED") for line in program.lines)
