"""A master with access control: which slaves may compare logs, and replicate."""

import asyncio
from pathlib import Path

import pytest

from mq.daemons.broker.app import Broker
from tests.daemons.broker.acl.accounts import home
from tests.daemons.broker.replication.guarded import ACCOUNTS, key_file
from tests.daemons.broker.replication.pair import caught_up, content, master, slave_of
from tests.daemons.broker.store.stores import put
from tests.waiting import until


async def fill(broker: Broker, text: bytes) -> None:
    for number in range(10):
        await put(broker.stores.messages, "Orders", number % 2, text * number)


def test_a_slave_that_signs_as_an_administrator_continues(tmp_path: Path) -> None:
    key = key_file(tmp_path, "the-slave", "secret-of-slave")

    async def main() -> None:
        guarded = {"aclEnable": "true", "rocketmqHome": str(home(tmp_path, ACCOUNTS))}
        async with master(tmp_path, **guarded) as first:
            await fill(first, b"one")
            async with slave_of(tmp_path, first, namesrvAclFile=key) as slave:
                await caught_up(slave, first)
            # Of a deleted topic: the compared record is in no queue of the master any more.
            first.stores.messages.delete_topic("Orders")
            async with slave_of(tmp_path, first, namesrvAclFile=key) as slave:
                await fill(first, b"two")
                await caught_up(slave, first)
                logs = [one.stores.messages.log for one in (slave, first)]
                assert content(logs[0]) == content(logs[1])
                assert not (tmp_path / "slave" / "damaged").exists()

    asyncio.run(main())


@pytest.mark.parametrize("key", ["", "somebody"])
def test_a_slave_without_permission_reports_what_it_needs(tmp_path: Path, key: str) -> None:
    path = key and key_file(tmp_path, key, "secret-of-somebody")

    async def main() -> None:
        guarded = {"aclEnable": "true", "rocketmqHome": str(home(tmp_path, ACCOUNTS))}
        async with master(tmp_path, **guarded) as first:
            await fill(first, b"one")
            async with slave_of(tmp_path, first, namesrvAclFile=path) as slave:
                await caught_up(slave, first)  # there is nothing to compare yet
            async with slave_of(tmp_path, first, namesrvAclFile=path) as slave:
                replication = slave.replication.slave
                assert replication is not None
                await until(lambda: "namesrvAclFile needs admin=true" in replication.problem)

    asyncio.run(main())
