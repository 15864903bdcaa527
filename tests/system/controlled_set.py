"""The brokers of a replica set, as processes, whose roles controllers assign; and their senders."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

from mq.client.admin import Admin
from mq.client.transport.session import Session
from tests.interop.ports import free_port
from tests.system.daemon import BrokerProcess, ControllerProcess
from tests.system.ledger import QUEUES, TOPIC, SenderProcess

NAME = "broker-a"
PATIENCE = 60.0


def member(folder: Path, number: int, controllers: str, **settings: str) -> BrokerProcess:
    """One whose acknowledgements wait for all members in sync."""
    return BrokerProcess(
        folder / f"store-{number}",
        {
            "brokerName": NAME,
            "listenPort": str(free_port()),
            "enableControllerMode": "true",
            "controllerAddr": controllers,
            "allAckInSyncStateSet": "true",
            "mappedFileSizeCommitLog": str(4 << 20),
            "diskMaxUsedSpaceRatio": "95",
            **settings,
        },
    )


def controller(folder: Path, number: int, etcd: str) -> ControllerProcess:
    """A broker that keeps its address when it is started again."""
    port = free_port()
    own = {"listenPort": str(port), "controllerAddress": f"127.0.0.1:{port}"}
    settings = {**own, "leaderLeaseSeconds": "2"}
    return ControllerProcess(folder / f"controller-{number}.log", etcd, settings)


async def leader_of(controllers: Sequence[str]) -> str:
    """The address of the leader of the controllers."""
    async with Session("127.0.0.1:1", timeout=2) as session:
        found = await Admin(session).controller_metadata(controllers[0])
        return found.controller_leader_address or ""


def point_to(address_file: Path, address: str) -> None:
    """Give senders another address, atomically."""
    written = address_file.with_suffix(".new")
    written.write_text(address)
    written.replace(address_file)


async def until_more(sender: SenderProcess, count: int) -> None:
    """Wait until this many more messages are acknowledged, as their file shows; there is no
    event."""
    wanted = sender.acknowledged + count
    async with asyncio.timeout(PATIENCE):
        while sender.acknowledged < wanted:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def until_all_show_the_same(addresses: Sequence[str]) -> None:
    """Wait until slaves know the topic, and all members have the last messages: the master reports
    them a moment after it has answered the sender, and Java's slaves poll for topics every ten
    seconds.
    """
    deadline = time.monotonic() + PATIENCE
    while (
        len(ends := {asyncio.run(_ends_of(address)) for address in addresses}) > 1 or None in ends
    ):
        assert time.monotonic() < deadline, ends
        time.sleep(0.05)


async def _ends_of(address: str) -> tuple[int, ...] | None:
    """The ends of the topic's queues, None while they are unknown at a member."""
    async with Session("127.0.0.1:1", timeout=5) as session:
        admin = Admin(session)
        if TOPIC not in (await admin.topic_configs(address)).topic_config_table:
            return None
        return tuple([await admin.max_offset(address, TOPIC, q) for q in range(QUEUES)])
