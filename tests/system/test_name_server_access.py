"""A name server that authenticates writes: the commands, signed and not, over real sockets."""

import asyncio
from pathlib import Path

from mq.daemons.broker.app import Broker
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.namesrv.app import NameServer
from mq.daemons.namesrv.config import NamesrvSettings
from tests.cli.support import Finished, Mq
from tests.daemons.broker.acl.accounts import home

ACCOUNTS = """\
accounts:
  - {accessKey: administrator, secretKey: admin_secret, admin: true}
"""
WRITES: tuple[tuple[str, ...], ...] = (
    ("wipeWritePerm", "-b", "broker-a"),
    ("addWritePerm", "-b", "broker-a"),
    ("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true"),
    ("updateKvConfig", "-s", "N", "-k", "K", "-v", "V"),
    ("deleteKvConfig", "-s", "N", "-k", "K", "--yes"),
    ("updateTopic", "-c", "DefaultCluster", "-t", "Ordered", "-o", "true"),
    ("updateOrderConf", "-m", "put", "-t", "Ordered", "-v", "broker-a:4"),
    ("updateOrderConf", "-m", "delete", "-t", "Ordered"),
    ("deleteTopic", "-c", "DefaultCluster", "-t", "Ordered", "--yes"),
)
READS: tuple[tuple[str, ...], ...] = (
    ("topicList",),
    ("clusterList",),
    ("topicRoute", "-t", "TBW102"),
    ("getNamesrvConfig",),
    ("updateOrderConf", "-m", "get", "-t", "TBW102"),
)


async def _run(mq: Mq, *arguments: str) -> Finished:
    return await asyncio.to_thread(mq, *arguments)


def test_commands_that_write_are_signed_and_those_that_are_not_are_refused(tmp_path: Path) -> None:
    home(tmp_path, ACCOUNTS)
    keys = tmp_path / "tools.yml"
    keys.write_text("accessKey: administrator\nsecretKey: admin_secret\n")

    async def main() -> None:
        settings = NamesrvSettings.load(
            None,
            {
                **{"listenPort": "0", "bindAddress": "127.0.0.1", "aclEnable": "true"},
                **{"rocketmqHome": str(tmp_path), "kvConfigPath": f"{tmp_path}/kv.json"},
            },
        )
        async with NameServer(settings) as server:
            broker_settings = BrokerSettings.load(
                None,
                {
                    **{"listenPort": "0", "brokerIP1": "127.0.0.1", "brokerName": "broker-a"},
                    **{"storePathRootDir": f"{tmp_path}/s", "namesrvAddr": server.address},
                    "namesrvAclFile": str(keys),
                },
            )
            async with Broker(broker_settings):
                mq = Mq(tmp_path, {"NAMESRV_ADDR": server.address})
                for command in READS:
                    read = await _run(mq, *command)
                    assert "NO_PERMISSION" not in read.err + read.out, read
                for command in WRITES:
                    refused = await _run(mq, *command)
                    assert refused.status != 0, command
                    assert "No accessKey is configured" in refused.err, refused
                    assert "writeAllowList" in refused.err, refused
                for command in WRITES:
                    done = await _run(mq, *command, "--acl-file", str(keys))
                    assert done.status == 0, done

    asyncio.run(main())
