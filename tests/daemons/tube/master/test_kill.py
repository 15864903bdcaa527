"""A master is killed: all acknowledged changes exist afterwards."""

import asyncio
import json
import re
import sys
from pathlib import Path

import pytest

from tests.daemons.tube.loops import in_loop
from tests.daemons.tube.master.masters import TOKEN, get
from tests.interop.process import Process
from tests.waiting import until

ROUNDS = 3


class MasterProcess(Process):
    """Run `mq tube master` in a process of its own, on a persistent folder."""

    def __init__(self, tmp: Path) -> None:
        config = tmp / "master.ini"
        config.write_text(
            f"[master]\nport=0\nwebPort=0\nmetaDataPath={tmp / 'meta'}\n"
            f"confModAuthToken={TOKEN}\n[meta_bdb]\nrepNodePort=9001\n"
        )
        command = [sys.executable, "-m", "mq", "tube", "master", "-f", str(config)]
        super().__init__(command, tmp / "home", "The TubeMQ master serves at")

    @property
    def web_port(self) -> int:
        [line] = [line for line in self.lines if "serves at" in line]
        found = re.search(r"web 127\.0\.0\.1:(\d+)", line)
        assert found is not None
        return int(found[1])


async def change(port: int, method: str, **parameters: object) -> bool:
    """Return whether a change was acknowledged."""
    given = {"confModAuthToken": TOKEN, "createUser": "me", "modifyUser": "me", **parameters}
    try:
        _, _, body = await get(port, method, given)
        return all(row["success"] for row in json.loads(body)["data"])
    except (OSError, ValueError, IndexError):
        return False


async def add_until_it_is_gone(port: int, begin: int, answered: list[str]) -> None:
    """Add topics, several at a time, until the master is down; record the acknowledged ones."""

    async def add(first: int) -> None:
        number = first
        while True:
            name = f"topic_{number}"
            if not await change(port, "admin_add_new_topic_record", topicName=name, brokerId=1):
                return
            answered.append(name)
            number += 4

    await asyncio.gather(*(add(begin + each) for each in range(4)))


@pytest.mark.timeout(120)
@in_loop
async def test_what_was_answered_is_there_after_a_kill(tmp_path: Path) -> None:
    answered: list[str] = []
    with MasterProcess(tmp_path) as master:
        ip: dict[str, object] = {"brokerId": 1, "brokerIp": "127.0.0.1"}
        assert await change(master.web_port, "admin_add_broker_configure", **ip)
        for round_ in range(ROUNDS):
            before = len(answered)
            adding = asyncio.ensure_future(
                add_until_it_is_gone(master.web_port, 10_000 * round_, answered)
            )
            await until(lambda: len(answered) >= before + 40)  # noqa: B023
            await asyncio.to_thread(master.kill)
            await adding
            await asyncio.to_thread(master.start)
        _, _, body = await get(master.web_port, "admin_query_topic_info", {})
    kept = {row["topicName"] for row in json.loads(body)["data"]}
    assert set(answered) <= kept
    # Each of the four may have had one unacknowledged change in progress.
    assert len(kept - set(answered)) <= 4 * ROUNDS + 1
