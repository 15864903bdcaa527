"""Access control and TLS between our side and Java's: clients, mqadmin and the 4.9 broker."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from mq.client.admin import Admin
from mq.client.credentials import AccessKey
from mq.client.errors import BrokerError
from mq.client.producer.producer import Producer
from mq.client.pull.pull_consumer import PullConsumer
from mq.client.transport.session import Session
from mq.daemons.standalone import Standalone
from mq.protocol.bodies import TopicConfig
from mq.protocol.message import Message
from tests.cli.pairs import running_pair
from tests.cli.support import Mq
from tests.interop import peers
from tests.interop.jvm import require_java
from tests.interop.tools import JavaTool

pytestmark = pytest.mark.java

CLIENT = "4.9.8-acl"
ACCOUNTS = """\
accounts:
  - {accessKey: administrator, secretKey: admin_secret, admin: true}
  - accessKey: application
    secretKey: application_secret
    whiteRemoteAddress:
    defaultTopicPerm: DENY
    defaultGroupPerm: DENY
    topicPerms: [Orders=PUB|SUB, Prices=SUB]
    groupPerms: [billing=SUB]
"""
ADMIN = AccessKey("administrator", "admin_secret")
APPLICATION = AccessKey("application", "application_secret")


def write_accounts(home: Path) -> None:
    """Java's broker searches its home for the file and for the folder."""
    (home / "conf" / "acl").mkdir(parents=True, exist_ok=True)
    (home / "conf" / "plain_acl.yml").write_text(ACCOUNTS)


def write_tools(home: Path, key: AccessKey) -> None:
    (home / "conf").mkdir(parents=True, exist_ok=True)
    text = f"accessKey: {key.access_key}\nsecretKey: {key.secret_key}\n"
    (home / "conf" / "tools.yml").write_text(text)


async def create_topics(namesrv: str, broker: str) -> None:
    async with Session(namesrv, credentials=ADMIN) as session:
        for topic in ("Orders", "Prices"):
            config = TopicConfig(topic_name=topic, read_queue_nums=1, write_queue_nums=1, perm=6)
            await Admin(session).create_topic(broker, config)


def secure(namesrv: str, key: AccessKey | None, topic: str, *, tls: bool = False) -> list[str]:
    """Return the Java client's output about its attempt."""
    who = (key.access_key, key.secret_key) if key else ("-", "-")
    flag = "true" if tls else "false"
    finished = peers.run_java(CLIENT, "Secure.java", namesrv, flag, *who, topic, "billing")
    return [line for line in finished.stdout.splitlines() if line.split(" ")[0].isupper()]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Standalone, Path]]:
    """Our daemons with access control, and the path of their accounts."""
    require_java()
    home = tmp_path_factory.mktemp("guarded")
    write_accounts(home)
    with running_pair({"aclEnable": "true", "rocketmqHome": str(home)}) as pair:
        asyncio.run(create_topics(pair.name_server_address, pair.broker.address))
        yield pair, home


def test_the_signing_java_client_sends_queries_and_consumes(
    guarded: tuple[Standalone, Path],
) -> None:
    pair, _ = guarded
    sent, *rest = secure(pair.name_server_address, APPLICATION, "Orders")
    assert sent.startswith("SENT ")
    assert rest == ["FOUND secret", "GOT secret", "DONE"]


@pytest.mark.parametrize(
    ("key", "topic", "text"),
    [
        (None, "Orders", "No accessKey is configured"),
        (AccessKey("application", "another_secret"), "Orders", "Check signature failed"),
        (APPLICATION, "Prices", "No default permission for topic:Prices"),
    ],
)
def test_the_java_client_is_refused_with_the_reason(
    guarded: tuple[Standalone, Path], key: AccessKey | None, topic: str, text: str
) -> None:
    pair, _ = guarded
    (refused,) = secure(pair.name_server_address, key, topic)
    assert refused.startswith("REFUSED 16 ")
    assert text in refused


def test_the_java_mqadmin_changes_our_accounts(
    guarded: tuple[Standalone, Path], tmp_path: Path
) -> None:
    pair, home = guarded
    tool = JavaTool(tmp_path)
    write_tools(tool.home, ADMIN)

    def mqadmin(name: str, *arguments: str) -> str:
        where = ("-n", pair.name_server_address, "-b", pair.broker.address)
        return tool(name, *where, *arguments)

    key = AccessKey("from_java", "secret_of_java")

    async def send() -> None:
        async with Producer(pair.name_server_address, "p", credentials=key) as producer:
            await producer.send(Message("Prices", b"x"))

    with tool:
        printed = mqadmin(
            *("updateAclConfig", "-a", key.access_key, "-s", key.secret_key, "-t", "Prices=PUB")
        )
        assert "create or update plain access config to" in printed
        assert "success" in printed
        asyncio.run(send())
        assert "plain_acl.yml" in mqadmin("clusterAclConfigVersion")
        assert "success" in mqadmin("updateGlobalWhiteAddr", "-g", "10.0.0.9")
        assert "10.0.0.9" in (home / "conf" / "plain_acl.yml").read_text()
        assert "success" in mqadmin("deleteAclConfig", "-a", key.access_key)
    with pytest.raises(BrokerError, match="No acl config for from_java"):
        asyncio.run(send())


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The addresses of a Java name server and a Java broker with access control."""
    require_java()
    tmp = tmp_path_factory.mktemp("java-acl")
    with peers.JavaNameServer("4.9.7", tmp) as namesrv:
        broker = peers.JavaBroker("4.9.7", tmp, namesrv.address, {"aclEnable": "true"})
        write_accounts(broker.home)
        with broker:
            asyncio.run(create_topics(namesrv.address, broker.address))
            yield namesrv.address, broker.address


def test_the_java_broker_accepts_the_signatures_of_our_client(java: tuple[str, str]) -> None:
    namesrv, _ = java

    async def main() -> None:
        async with Session(namesrv, credentials=APPLICATION) as session:
            async with Producer(session, "app") as producer:
                one = await producer.send(Message("Orders", b"one", keys=["k"]))
                await producer.send_batch(
                    [Message("Orders", b"two"), Message("Orders", "zwö".encode())]
                )
                with pytest.raises(BrokerError, match="No default permission for topic:Prices"):
                    await producer.send(Message("Prices", b"x"))
            async with PullConsumer(session, "billing") as consumer:
                bodies: list[bytes] = []
                # Java makes them readable some time after its response
                async with asyncio.timeout(60):
                    while len(bodies) < 3:
                        offset = one.queue_offset + len(bodies)
                        result = await consumer.pull(one.queue, offset)
                        bodies += [bytes(message.body) for message in result.messages]
            assert bodies == [b"one", b"two", "zwö".encode()]
        async with Producer(namesrv, "app") as unsigned:
            with pytest.raises(BrokerError, match="No accessKey is configured"):
                await unsigned.send(Message("Orders", b"x"))

    asyncio.run(main())


def test_our_command_finds_a_message_by_unique_key_at_the_java_broker(
    java: tuple[str, str], tmp_path: Path
) -> None:
    namesrv, broker = java

    async def send() -> str:
        async with Producer(namesrv, "app", credentials=APPLICATION) as producer:
            return (await producer.send(Message("Orders", b"find me"))).message_id

    unique = asyncio.run(send())
    write_tools(tmp_path, APPLICATION)
    mq = Mq(tmp_path / "config", {"NAMESRV_ADDR": namesrv, "ROCKETMQ_HOME": str(tmp_path)})
    found = mq("queryMsgByUniqueKey", "-t", "Orders", "-i", unique, "-o", "json")
    assert found.status == 0, found
    refused = mq("updateTopic", "-t", "New", "-b", broker)
    assert "Need admin permission for request code=17" in refused.err


def test_the_java_client_speaks_tls_with_our_daemons(tmp_path: Path) -> None:
    require_java()
    properties = {"tls.test.mode.enable": "true", "tls.server.mode": "permissive"}
    with running_pair(properties) as pair:
        asyncio.run(create_topics(pair.name_server_address, pair.broker.address))
        relay = pair.name_server_address
        sent, *rest = secure(relay, None, "Orders", tls=True)
    assert sent.startswith("SENT ")
    assert rest == ["FOUND secret", "GOT secret", "DONE"]
