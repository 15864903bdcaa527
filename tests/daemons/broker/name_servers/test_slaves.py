"""A slave's registration: it gets the address of its master from name servers."""

import asyncio
from pathlib import Path

from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.name_servers.registration import Registration
from mq.daemons.broker.topics.topic_table import new_topic
from mq.daemons.supervision import Tasks
from tests.daemons.broker.name_servers.registered import Setup, run
from tests.daemons.peer import PATIENCE

HA_ADDRESS = "127.0.0.1:20912"


def test_a_slave_learns_its_master(tmp_path: Path) -> None:
    async def script(setup: Setup) -> None:
        master = BrokerSettings.load(
            None,
            {
                "brokerName": "broker-a",
                "brokerIP1": "127.0.0.1",
                "namesrvAddr": ";".join(s.address for s in setup.servers),
            },
        )
        async with (
            Tasks() as tasks,
            Registration(master, setup.topics, 20911, 20912, tasks) as registration,
        ):
            await asyncio.wait_for(registration.first_round.wait(), PATIENCE)
            async with setup.registration:
                await setup.first_round()
                assert setup.registration.masters.address == "127.0.0.1:20911"
                assert setup.registration.masters.ha_address == "127.0.0.1:20912"

    run(tmp_path, script, brokerRole="SLAVE", brokerId="1")


def test_a_slave_that_starts_first_learns_its_master_soon(tmp_path: Path) -> None:
    async def script(setup: Setup) -> None:
        settings = {
            "brokerName": "broker-a",
            "brokerIP1": "127.0.0.1",
            "namesrvAddr": ";".join(s.address for s in setup.servers),
        }
        masters = setup.registration.masters
        async with setup.registration:
            await setup.first_round()
            assert (masters.address, masters.ha_address) == ("", "")
            master = BrokerSettings.load(None, settings)
            async with Tasks() as tasks, Registration(master, setup.topics, 20911, 20912, tasks):
                # without a trigger it registers every thirty seconds
                async with asyncio.timeout(25.0):
                    await masters.changed.wait()
                assert (masters.address, masters.ha_address) == ("127.0.0.1:20911", HA_ADDRESS)
            setup.registration.query_master()
            async with asyncio.timeout(25.0):
                while masters.address:
                    await setup.registration.round_ended()
            assert masters.ha_address == HA_ADDRESS

    run(tmp_path, script, brokerRole="SLAVE", brokerId="1")


def test_a_slave_registers_no_topics(tmp_path: Path) -> None:
    async def script(setup: Setup) -> None:
        await setup.topics.update(new_topic("T", 3))
        async with setup.registration:
            await setup.first_round()
            for server in setup.servers:
                assert not server.routes.topics
                assert server.routes.brokers["broker-a"].broker_addrs == {
                    1: setup.registration.address
                }

    run(tmp_path, script, brokerRole="SLAVE", brokerId="1")
