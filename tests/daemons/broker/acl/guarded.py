"""A real broker with access control, and peers that sign with one of its accounts."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from mq.daemons.broker.app import Broker
from mq.daemons.broker.config import BrokerSettings
from mq.protocol.bodies import TopicConfig
from mq.protocol.codes import LanguageCode
from mq.protocol.codes import RequestCode as Code
from mq.protocol.command import Command
from mq.protocol.frame import encode
from mq.protocol.headers import HEADERS
from mq.protocol.headers.schema import Header
from tests.daemons.broker.acl.accounts import home, signed
from tests.daemons.peer import Peer

#: Accounts by permissions: `mine` its own topic and group, `theirs` another's, `nothing` nothing.
ACCOUNTS = """\
accounts:
  - {accessKey: administrator, secretKey: admin_secret, admin: true}
  - accessKey: mine_account
    secretKey: mine_secret
    defaultTopicPerm: DENY
    defaultGroupPerm: DENY
    topicPerms: [mine=PUB|SUB]
    groupPerms: [mine_group=SUB]
  - accessKey: theirs_account
    secretKey: theirs_secret
    defaultTopicPerm: DENY
    defaultGroupPerm: DENY
    topicPerms: [secret=PUB|SUB]
    groupPerms: [secret_group=SUB]
  - accessKey: nothing_account
    secretKey: nothing_secret
    defaultTopicPerm: DENY
    defaultGroupPerm: DENY
  - accessKey: default_account
    secretKey: default_secret
    defaultTopicPerm: PUB|SUB
    defaultGroupPerm: SUB
"""
ADMIN = ("administrator", b"admin_secret")
MINE = ("mine_account", b"mine_secret")
THEIRS = ("theirs_account", b"theirs_secret")
NOTHING = ("nothing_account", b"nothing_secret")
DEFAULT = ("default_account", b"default_secret")
STRANGER = ("stranger_account", b"stranger_secret")  # not an account of the broker

Account = tuple[str, bytes]
Script = Callable[[Broker], Awaitable[None]]


def serve(tmp_path: Path, script: Script, acl: bool = True, **settings: str) -> None:
    """Run a script against a broker with the topics `mine` and `secret`."""

    async def main() -> None:
        fixed = {"listenPort": "0", "brokerIP1": "127.0.0.1", "storePathRootDir": f"{tmp_path}/s"}
        if acl:
            fixed |= {"aclEnable": "true", "rocketmqHome": str(home(tmp_path, ACCOUNTS))}
        async with Broker(BrokerSettings.load(None, {**fixed, **settings})) as broker:
            for name in ("mine", "secret"):
                config = TopicConfig(topic_name=name, read_queue_nums=2, write_queue_nums=2)
                await broker.stores.topics.update(config)
            await script(broker)

    asyncio.run(main())


class SigningPeer(Peer):
    """A connection on which every request is signed by one account; None signs nothing."""

    def __init__(self, broker: Broker | int, account: Account | None) -> None:
        super().__init__(broker if isinstance(broker, int) else broker.port)
        self.account = account

    def sign(self, fields: Mapping[str, str], body: bytes = b"") -> dict[str, str]:
        return dict(fields) if self.account is None else signed(self.account, fields, body)

    async def ask(
        self,
        code: int,
        fields: Header | Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        version: int = 401,
        language: int = LanguageCode.JAVA,
        serialization: int = 0,
    ) -> Command:
        plain = fields.encode() if isinstance(fields, Header) else (fields or {})
        self._opaque += 1
        request = Command(
            code,
            self.sign(plain, body),
            body,
            opaque=self._opaque,
            version=version,
            language=language,
            serialization=serialization,
        )
        self.writer.write(encode(request))
        while True:
            command = await self.receive()
            if command.is_response and command.opaque == request.opaque:
                return command
            self.pushed.append(command)


def send_fields(topic: str, queue_id: int = 0, properties: str = "") -> dict[str, str]:
    """The fields of SEND_MESSAGE_V2."""
    return {
        **{"a": "P", "b": topic, "c": "TBW102", "d": "2", "e": str(queue_id), "f": "0"},
        **{"g": "1700000000000", "h": "0", "i": properties, "j": "0", "k": "false", "m": "false"},
    }


def pull_fields(topic: str, group: str, queue_id: int = 0, offset: int = 0) -> dict[str, str]:
    """The fields of PULL_MESSAGE."""
    return {
        **{"consumerGroup": group, "topic": topic, "queueId": str(queue_id), "sysFlag": "4"},
        **{"queueOffset": str(offset), "maxMsgNums": "32", "commitOffset": "0", "subVersion": "1"},
        **{"suspendTimeoutMillis": "0", "subscription": "*", "expressionType": "TAG"},
    }


# The fields and the body of a request of the account `mine`.
OWN = {"topic": "mine", "b": "mine", "consumerGroup": "mine_group", "group": "mine_group"}
USUAL = {"maxMsgNums": "8", "maxNum": "8", "count": "8", "sysFlag": "4", "subscription": "*"}
USUAL |= {
    "endTimestamp": str(1 << 62),
    "invisibleTime": "1000",
    "key": "K",
    "defaultTopic": "TBW102",
}
USUAL |= {"c": "TBW102", "d": "2", "defaultTopicQueueNums": "2", "commitOffset": "5"}
BODIES = {
    Code.HEART_BEAT: {
        "clientID": "c",
        "consumerDataSet": [{"groupName": "mine_group", "subscriptionDataSet": []}],
        "producerDataSet": [],
    },
    Code.LOCK_BATCH_MQ: {
        **{"consumerGroup": "mine_group", "clientId": "c"},
        "mqSet": [{"topic": "mine", "brokerName": "b", "queueId": 0}],
    },
    Code.UNLOCK_BATCH_MQ: {"consumerGroup": "mine_group", "clientId": "c", "mqSet": []},
    Code.QUERY_ASSIGNMENT: {"topic": "mine", "consumerGroup": "mine_group", "clientId": "c"},
    Code.BATCH_ACK_MESSAGE: {"acks": [{"t": "mine", "c": "mine_group", "r": "0"}]},
}


def base(code: int) -> dict[str, str]:
    """The fields of a request about its own topic and group."""
    schema = HEADERS.get(Code(code))
    if schema is None:
        return {}
    wires = [field.wire for field in schema.FIELDS if field.required or field.wire in OWN]
    usual = USUAL if "defaultTopic" not in wires else {**USUAL, "sysFlag": "0"}
    return {wire: OWN.get(wire) or usual.get(wire, "0") for wire in wires}
