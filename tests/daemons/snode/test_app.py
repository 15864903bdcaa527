"""A snode as a daemon: registration, accounts, interceptors, limits, pushes."""

import asyncio
from pathlib import Path
from typing import ClassVar

import pytest

from mq.daemons.acl.networks import is_loopback
from mq.daemons.channel import Channel
from mq.daemons.config import ConfigError
from mq.daemons.namesrv.app import NameServer
from mq.daemons.namesrv.config import NamesrvSettings
from mq.daemons.snode.app import Snode
from mq.daemons.snode.config import SnodeSettings
from mq.protocol.bodies import (
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    SubscriptionData,
)
from mq.protocol.bodies.schema import MessageQueue
from mq.protocol.codes import Dialect, RequestCode, ResponseCode, SnodeCode
from mq.protocol.command import Command
from mq.protocol.message import decode_records
from mq.protocol.message_id import decode_offset_id
from tests.daemons.broker.acl.accounts import home
from tests.daemons.broker.acl.guarded import ACCOUNTS, ADMIN, MINE, THEIRS, SigningPeer, send_fields
from tests.daemons.peer import Peer
from tests.daemons.snode.pulls import heartbeat, pull
from tests.daemons.snode.world import ENODE, snode_settings, world
from tests.interop.ports import free_port
from tests.waiting import until


def test_name_servers_and_brokers_know_a_snode(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as one:
            await until(lambda: len(one.name_server.snodes) == 1)
            (data,) = one.name_server.snodes.info().snode_table.values()
            assert (data.snode_name, data.address) == ("snode-a", one.snode.address)
            assert data.cluster_name == "defaultCluster"
            channels = one.broker.listener.channels
            await until(lambda: any(c.dialect is Dialect.SNODE for c in channels))
            assert "1 enodes" in one.snode.status_text()

    asyncio.run(main())


def test_a_snode_starts_before_name_servers_and_finds_them(tmp_path: Path) -> None:
    async def main() -> None:
        port = str(free_port())
        properties = {"listenPort": port, "kvConfigPath": str(tmp_path / "kv.json")}
        async with Snode(snode_settings(f"127.0.0.1:{port}")) as snode:
            assert "not registered" in snode.status_text()
            async with NameServer(NamesrvSettings.load(None, properties)) as late:
                await until(lambda: len(late.snodes) == 1)
                await until(lambda: "not registered" not in snode.status_text())

    asyncio.run(main())


def test_accounts_limit_sends(tmp_path: Path) -> None:
    async def main() -> None:
        key = tmp_path / "key.yml"
        key.write_text("accessKey: administrator\nsecretKey: admin_secret\n")
        guarded = {"aclEnable": "true", "rocketmqHome": str(home(tmp_path, ACCOUNTS))}
        signs = {**guarded, "enodeAclFile": str(key)}
        async with world(tmp_path, brokers=guarded, snode_is=signs) as one:
            await one.make_topic("mine")
            fields = {**send_fields("mine"), "n": ENODE}
            for account, code in (
                (MINE, ResponseCode.SUCCESS),
                (THEIRS, ResponseCode.NO_PERMISSION),
                (None, ResponseCode.NO_PERMISSION),
                (ADMIN, ResponseCode.SUCCESS),
            ):
                async with SigningPeer(one.port, account) as peer:
                    assert (await peer.ask(310, fields, b"x")).code == code
            for asked, code in (
                ({"topic": "mine", "consumerGroup": "mine_group"}, ResponseCode.SUCCESS),
                ({"topic": "secret", "consumerGroup": "mine_group"}, ResponseCode.NO_PERMISSION),
                ({"topic": "mine", "consumerGroup": "other"}, ResponseCode.NO_PERMISSION),
            ):
                async with SigningPeer(one.port, MINE) as peer:
                    given = pull(sysFlag="4", subscription="*", **asked)
                    reply = await peer.ask(SnodeCode.SNODE_PULL_MESSAGE, given)
                    assert reply.code == code, reply
                    group = {"groupName": asked["consumerGroup"], "enodeName": ENODE}
                    made = await peer.ask(SnodeCode.CREATE_RETRY_TOPIC, group)
                    allowed = asked["consumerGroup"] == "mine_group"
                    assert (made.code == ResponseCode.SUCCESS) is allowed

    asyncio.run(main())


@pytest.mark.parametrize("brokers_ask", [True, False])
@pytest.mark.parametrize("signs", [True, False])
def test_sending_back_a_message_needs_permission_to_read_it(
    tmp_path: Path, brokers_ask: bool, signs: bool
) -> None:
    """A message that is sent back is added to the retry topic of the sender's group, whatever its
    topic.
    """

    async def main() -> None:
        key = tmp_path / "key.yml"
        key.write_text("accessKey: administrator\nsecretKey: admin_secret\n")
        guarded = {"aclEnable": "true", "rocketmqHome": str(home(tmp_path, ACCOUNTS))}
        snode = {**guarded, "enodeAclFile": str(key) if signs else ""}
        async with (
            world(tmp_path, brokers=guarded if brokers_ask else {}, snode_is=snode) as one,
            SigningPeer(one.port, MINE) as mine,
            SigningPeer(one.port, THEIRS) as theirs,
        ):
            for topic, sender, code in (
                ("secret", theirs, ResponseCode.NO_PERMISSION),
                ("mine", mine, ResponseCode.SUCCESS),
            ):
                await one.make_topic(topic)
                sent = await sender.ask(310, {**send_fields(topic), "n": ENODE}, b"x")
                offset = decode_offset_id(sent.fields["msgId"]).offset
                back = {"offset": str(offset), "group": "mine_group", "delayLevel": "1"}
                back |= {"originTopic": "mine", "maxReconsumeTimes": "16", "enodeName": ENODE}
                assert (await mine.ask(RequestCode.CONSUMER_SEND_MSG_BACK, back)).code == code

    asyncio.run(main())


def test_without_its_own_account_a_snode_forwards_signatures(tmp_path: Path) -> None:
    async def main() -> None:
        guarded = {"aclEnable": "true", "rocketmqHome": str(home(tmp_path, ACCOUNTS))}
        async with world(tmp_path, brokers=guarded) as one:
            await one.make_topic("mine")
            fields = {**send_fields("mine"), "n": ENODE}
            for account, code in ((MINE, 0), (THEIRS, 16), (None, 16)):
                async with SigningPeer(one.port, account) as peer:
                    assert (await peer.ask(310, fields, b"x")).code == code

    asyncio.run(main())


def test_an_account_of_its_own_without_access_control_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="enodeAclFile"):
        snode_settings("127.0.0.1:9876", enodeAclFile="key.yml")


class Counting:
    """An interceptor that counts its calls."""

    seen: ClassVar[list[str]] = []

    def before_request(self, request: Command, channel: Channel) -> None:
        self.seen.append(f"before {request.code}")

    def after_request(self, request: Command, channel: Channel, response: Command) -> None:
        self.seen.append(f"after {request.code} {response.code}")

    def on_exception(self, request: Command, channel: Channel, error: Exception) -> None:
        self.seen.append(f"failed {request.code}")


def test_interceptors_are_around_what_is_forwarded(tmp_path: Path) -> None:
    async def main() -> None:
        name = f"{__name__}.Counting"
        given = {"sendMessageInterceptors": name, "remotingServerInterceptors": name}
        async with world(tmp_path, snode_is=given) as one, Peer(one.port) as peer:
            await one.make_topic("T")
            Counting.seen.clear()
            await peer.ask(310, {**send_fields("T"), "n": ENODE}, b"x")
            assert Counting.seen == ["before 310", "before 310", "after 310 0", "after 310 0"]
            Counting.seen.clear()
            await peer.ask(310, {**send_fields("T"), "n": "nobody"}, b"x")
            assert Counting.seen == ["before 310", "before 310", "failed 310", "failed 310"]
            Counting.seen.clear()
            await peer.ask(RequestCode.HEART_BEAT, None, heartbeat())
            assert Counting.seen == ["before 34", "after 34 0"]

    asyncio.run(main())


def test_requests_over_the_limit_are_refused(tmp_path: Path) -> None:
    async def main() -> None:
        limits = tmp_path / "conf"
        limits.mkdir()
        (limits / "flow_control.yml").write_text(
            "snode:\n  countLimit:\n"
            "    - {flowControlResourceName: 30, flowControlResourceCount: 1}\n"
        )
        async with world(tmp_path, rocketmqHome=str(tmp_path)) as one, Peer(one.port) as peer:
            await one.make_topic("T")
            asked = {"topic": "T", "queueId": "0", "enodeName": ENODE}
            codes = [(await peer.ask(30, asked)).code for _ in range(4)]
            assert codes[0] == ResponseCode.SUCCESS
            assert ResponseCode.SYSTEM_BUSY in codes

    asyncio.run(main())


def test_a_message_is_pushed_to_a_consumer_that_asks_for_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as one, Peer(one.port) as peer, Peer(one.port) as producer:
            await one.make_topic("T")
            queues = {MessageQueue("T", ENODE, 0)}
            subscription = SubscriptionData(topic="T", sub_string="*", message_queue_set=queues)
            data = ConsumerData(
                group_name="g",
                consume_type=ConsumeType.CONSUME_PUSH,
                message_model=MessageModel.CLUSTERING,
                subscription_data_set=[subscription],
            )
            body = HeartbeatData(client_id="c", consumer_data_set=[data]).encode()
            await peer.ask(RequestCode.HEART_BEAT, None, body)
            await producer.ask(310, {**send_fields("T"), "n": ENODE}, b"hello")
            pushed = await peer.pushed_command()
            while pushed.code != SnodeCode.PUSH_MESSAGE:
                pushed = await peer.receive()
            (message,) = decode_records(pushed.body)
            assert (message.body, pushed.fields["consumerGroup"]) == (b"hello", "g")
            assert one.snode.push.counts["pushed"] == 1

    asyncio.run(main())


def test_metrics_have_the_names_of_the_snode_branch_and_ours(tmp_path: Path) -> None:
    async def main() -> None:
        async with world(tmp_path) as one, Peer(one.port) as peer:
            await one.make_topic("T")
            await peer.ask(310, {**send_fields("T"), "n": ENODE}, b"12345")
            await peer.ask(310, {**send_fields("T"), "n": "nobody"}, b"12345")
            found = {metric.name: metric for metric in one.snode.metrics()}
            assert found["request_total"].values == [(("310",), 1.0)]
            assert found["sent_topic_size_bytes"].values == [(("T",), 5.0)]
            codes = {labels for labels, _ in found["requests_latency_seconds"].values}
            assert codes == {("310", "0.5"), ("310", "0.9"), ("310", "0.99")}
            assert found["mq_snode_enodes"].values == [((), 1.0)]
            assert any("enode broker-a" in line for line in one.snode.state())

    asyncio.run(main())


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("snodeName", "a b", "snodeName"),
        ("enodePorts", "broker-a", "NAME:PORT"),
        ("enodePorts", "a:1;a:2", "twice"),
        ("namesrvAddr", "", "namesrvAddr"),
        ("embeddedModeEnable", "true", "embeddedBrokerConfig"),
        ("pullConnections", "0", "pullConnections"),
        ("remotingServerInterceptors", "nothing", "remotingServerInterceptors"),
        ("slowConsumerPolicy", "SLOW", "CLOSE, SKIP"),
    ],
)
def test_a_setting_that_cannot_work_is_named(name: str, value: str, why: str) -> None:
    async def main() -> None:
        async with Snode(snode_settings("127.0.0.1:9", **{name: value})):
            pass

    with pytest.raises(ConfigError, match=why):
        asyncio.run(main())


def test_a_snode_without_access_control_listens_on_this_machine_only() -> None:
    assert is_loopback(SnodeSettings.load(None, {"namesrvAddr": "127.0.0.1:9"}).listen_host)
