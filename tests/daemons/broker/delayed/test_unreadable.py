"""A message on a block that the disk cannot read holds back no other timed message."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from mq.client.transport.session import Session
from tests.daemons.broker.delayed.timed import SMALL, bodies, send_due, timer_of
from tests.daemons.broker.killed import copy_as_killed
from tests.daemons.broker.running import broker_on
from tests.daemons.broker.unreadable import unreadable
from tests.daemons.set_clock import set_clock
from tests.waiting import until


@pytest.mark.parametrize("is_killed", [False, True], ids=["running", "killed"])
def test_an_unreadable_message_blocks_no_other(tmp_path: Path, is_killed: bool) -> None:
    root = tmp_path / "store"

    async def main() -> None:
        with set_clock() as given, contextlib.ExitStack() as disk:
            async with broker_on(root, **SMALL) as broker, Session("127.0.0.1:1") as session:
                due = given.now + 2000
                for body in (b"bad" * 4096, b"good"):
                    await send_due(session, broker, body, due)
                timer = timer_of(broker)
                await until(lambda: timer._offset == 2)
                disk.enter_context(unreadable(4096))
                if not is_killed:
                    assert await bodies(session, broker, 1) == [b"good"]
                    return
                copy_as_killed(root, tmp_path / "killed")
            store = tmp_path / "killed"
            async with broker_on(store, **SMALL) as broker, Session("127.0.0.1:1") as session:
                assert await bodies(session, broker, 1) == [b"good"]

    asyncio.run(main())
