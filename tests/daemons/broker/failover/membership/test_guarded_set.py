"""A set with access control: what members and controllers may request, and the effects without
permission.
"""

import asyncio
import logging
from pathlib import Path

import pytest

from mq.protocol.codes import RequestCode, ResponseCode
from tests.daemons.broker.acl.accounts import home
from tests.daemons.broker.failover.membership.controller import ScriptedController
from tests.daemons.broker.failover.membership.sets import NAME, ask, is_master, is_slave, member_of
from tests.daemons.broker.replication.guarded import ACCOUNTS, key_file
from tests.daemons.broker.replication.pair import caught_up
from tests.daemons.broker.store.stores import put


def test_members_that_sign_replicate_and_fail_over_although_notices_are_rejected(
    tmp_path: Path,
) -> None:
    async def play() -> None:
        guarded = {
            "aclEnable": "true",
            "rocketmqHome": str(home(tmp_path, ACCOUNTS)),
            "namesrvAclFile": key_file(tmp_path, "the-slave", "secret-of-slave"),
            "allAckInSyncStateSet": "true",
            "syncBrokerMetadataPeriod": "60000",
        }
        async with (
            ScriptedController() as controller,
            member_of(tmp_path, controller, **guarded) as first,
        ):
            old = await is_master(first, 1)
            async with member_of(tmp_path, controller, "two", **guarded) as second:
                slave = await is_slave(second, old.address)
                await controller.until(lambda: controller.sets[NAME].members == {1, 2})
                await put(old.stores.messages, "Orders", 0, b"one")
                await caught_up(slave, old)
                for code in (
                    RequestCode.NOTIFY_BROKER_ROLE_CHANGED,
                    RequestCode.EXCHANGE_BROKER_HA_INFO,
                ):
                    assert (await ask(old.port, code)).code != ResponseCode.SUCCESS
                await first.__aexit__()
                new = await is_master(second, 2)
                assert new.stores.messages.log.written > 0

    asyncio.run(play())


def test_a_slave_without_permission_at_its_master_reports_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        guarded = {"aclEnable": "true", "rocketmqHome": str(home(tmp_path, ACCOUNTS))}
        async with (
            ScriptedController() as controller,
            member_of(tmp_path, controller, **guarded) as first,
        ):
            old = await is_master(first, 1)
            async with member_of(tmp_path, controller, "two", **guarded) as second:
                await is_slave(second, old.address)
                async with asyncio.timeout(30):
                    while "namesrvAclFile" not in caplog.text:  # noqa: ASYNC110
                        await asyncio.sleep(0.01)

    with caplog.at_level(logging.WARNING):
        asyncio.run(play())
