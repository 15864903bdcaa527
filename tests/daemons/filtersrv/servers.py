"""A broker, a name server and a filter server in the event loop of the test."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import pytest

from mq.client.admin import Admin
from mq.client.producer.producer import Producer
from mq.client.transport.session import Session
from mq.daemons.filtersrv.app import FilterServer
from mq.daemons.filtersrv.config import FiltersrvSettings
from mq.daemons.filtersrv.sandbox import process
from mq.daemons.standalone import Standalone
from mq.protocol.bodies import TopicConfig
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.flags import PullSysFlag
from mq.protocol.headers.filtersrv import RegisterMessageFilterClassRequestHeader
from mq.protocol.headers.pull import PullMessageRequestHeader
from mq.protocol.message import Message
from tests.daemons.peer import Peer

TOPIC = "Orders"
GROUP = "billing"
EVEN = b"class Even:\n    def match(self, message):\n        return int(message.body) % 2 == 0\n"


class Servers(NamedTuple):
    """All three, and a producer."""

    pair: Standalone
    filters: FilterServer
    session: Session
    producer: Producer

    async def send(self, *bodies: bytes, tag: str | None = None) -> None:
        for body in bodies:
            await self.producer.send(Message(TOPIC, body, tag))


def filter_settings(broker: str, **settings: str) -> FiltersrvSettings:
    fixed = {"connectWhichBroker": broker, "clientUploadFilterClassEnable": "true"}
    # These tests are not about busy machines.
    fixed |= {"filterBatchMillis": "30000", "filterLoadMillis": "30000"}
    return FiltersrvSettings.load(None, {**fixed, **settings})


@asynccontextmanager
async def servers(queues: int = 1, **settings: str) -> AsyncIterator[Servers]:
    """Serve until the block ends; the filter server is registered when the block begins."""
    allowed = {"filterServerAllowList": "127.0.0.1"}
    async with Standalone(name_server_port=0, broker_port=0, properties=allowed) as pair:
        address = pair.broker.address
        async with (
            FilterServer(filter_settings(address, **settings)) as filters,
            Session(pair.name_server_address) as session,
            Producer(session) as producer,
        ):
            config = TopicConfig(topic_name=TOPIC, read_queue_nums=queues, write_queue_nums=queues)
            await Admin(session).create_topic(address, config)
            await filters.broker.registered.wait()
            await pair.broker.registration.announced()
            yield Servers(pair, filters, session, producer)


def without_seccomp(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """From now on sandboxes do not find pyseccomp."""
    (folder / "pyseccomp.py").write_text("raise ImportError\n")
    real = process._command

    def command(*given: object) -> list[str]:
        words = real(*given)  # type: ignore[arg-type]
        place = words.index("-c") + 1
        words[place] = f"import sys; sys.path.insert(0, {str(folder)!r}); {words[place]}"
        return words

    monkeypatch.setattr(process, "_command", command)


async def upload(
    peer: Peer,
    source: bytes = EVEN,
    name: str = "Even",
    *,
    group: str = GROUP,
    crc: int | None = None,
) -> Command:
    header = RegisterMessageFilterClassRequestHeader(
        consumer_group=group,
        topic=TOPIC,
        class_name=name,
        class_crc=crc32(source) & 0x7FFFFFFF if crc is None else crc,
    )
    return await peer.ask(RequestCode.REGISTER_MESSAGE_FILTER_CLASS, header, source)


async def pull(
    peer: Peer, offset: int = 0, *, queue_id: int = 0, count: int = 32, group: str = GROUP
) -> Command:
    """Pull like a consumer of 4.2.0 through a filter server."""
    header = PullMessageRequestHeader(
        consumer_group=group,
        topic=TOPIC,
        queue_id=queue_id,
        queue_offset=offset,
        max_msg_nums=count,
        sys_flag=PullSysFlag.SUSPEND | PullSysFlag.CLASS_FILTER,
        commit_offset=0,
        suspend_timeout_millis=15_000,
        sub_version=0,
    )
    return await peer.ask(RequestCode.PULL_MESSAGE, header)
