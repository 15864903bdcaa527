"""Permissions to pull through a filter server and to upload, by the broker's accounts."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from zlib import crc32

from mq.client.consumer.consumer import Consumer
from mq.client.credentials import AccessKey
from mq.client.producer.producer import Producer
from mq.client.pull.filter_classes import ClassFilter
from mq.client.transport.session import Session
from mq.daemons.filtersrv.app import KEY_VARIABLE, FilterServer
from mq.daemons.standalone import Standalone
from mq.protocol.bodies import ConsumeFromWhere
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.headers.filtersrv import RegisterMessageFilterClassRequestHeader
from mq.protocol.headers.pull import PullMessageRequestHeader
from mq.protocol.message import Message
from tests.daemons.broker.acl.accounts import home
from tests.daemons.filtersrv.servers import EVEN, filter_settings

ACCOUNTS = """\
accounts:
  - {accessKey: administrator, secretKey: admin_secret, admin: true}
  - {accessKey: consumer, secretKey: consumer_secret, topicPerms: [Orders=PUB|SUB],
     groupPerms: [billing=SUB]}
  - {accessKey: uploader, secretKey: upload_secret, topicPerms: [Orders=SUB],
     groupPerms: [billing=SUB]}
"""
ADMINISTRATOR = AccessKey("administrator", "admin_secret")
CONSUMER = AccessKey("consumer", "consumer_secret")
UPLOADER = AccessKey("uploader", "upload_secret")


@asynccontextmanager
async def guarded(folder: Path) -> AsyncIterator[tuple[Standalone, FilterServer]]:
    """A broker and a filter server with these accounts; the filter server has the broker's key, as
    if the broker had started it.
    """
    home(folder, ACCOUNTS)
    acl = {"aclEnable": "true", "rocketmqHome": str(folder), "bindAddress": "127.0.0.1"}
    async with Standalone(name_server_port=0, broker_port=0, properties=acl) as pair:
        key = pair.broker.filters.servers.issue_key()
        settings = filter_settings(
            pair.broker.address, filterUploadAccounts="uploader;another", **acl
        )
        with_key = {KEY_VARIABLE: f"{key.access_key}:{key.secret_key}"}
        os.environ.update(with_key)
        async with FilterServer(settings) as filters:
            assert KEY_VARIABLE not in os.environ
            await filters.broker.registered.wait()
            await pair.broker.registration.announced()
            yield pair, filters


async def upload(filters: FilterServer, key: AccessKey | None, topic: str = "Orders") -> Command:
    header = RegisterMessageFilterClassRequestHeader(
        consumer_group="billing",
        topic=topic,
        class_name="Even",
        class_crc=crc32(EVEN) & 0x7FFFFFFF,
    )
    command = Command(RequestCode.REGISTER_MESSAGE_FILTER_CLASS, header.encode(), EVEN)
    async with Session(filters.address, credentials=key) as session:
        return await session.invoke(filters.address, command)


async def pull(
    filters: FilterServer, key: AccessKey | None, topic: str = "Orders", group: str = "billing"
) -> Command:
    header = PullMessageRequestHeader(
        consumer_group=group,
        topic=topic,
        queue_id=0,
        queue_offset=0,
        max_msg_nums=32,
        sys_flag=8,
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
    )
    async with Session(filters.address, credentials=key) as session:
        command = Command(RequestCode.PULL_MESSAGE, header.encode())
        return await session.invoke(filters.address, command)


def test_only_administrators_and_named_accounts_may_upload(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded(tmp_path) as (_, filters):
            for key, told in (
                (None, "No accessKey is configured"),
                (AccessKey("uploader", "wrong_secret"), "Check signature failed"),
                (CONSUMER, "accessKey=consumer may not upload classes"),
            ):
                reply = await upload(filters, key)
                assert reply.code == ResponseCode.NO_PERMISSION
                assert told in str(reply.remark)
            for key in (ADMINISTRATOR, UPLOADER):
                assert (await upload(filters, key)).code == ResponseCode.SUCCESS
            reply = await upload(filters, UPLOADER, topic="Secrets")  # which it must not read
            assert reply.code == ResponseCode.NO_PERMISSION

    asyncio.run(main())


def test_a_group_without_read_permission_for_a_topic_cannot_pull_it_here(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded(tmp_path) as (_, filters):
            await upload(filters, UPLOADER)
            for key, topic, group in (
                (None, "Orders", "billing"),
                (CONSUMER, "Secrets", "billing"),
                (CONSUMER, "Orders", "others"),
            ):
                reply = await pull(filters, key, topic, group)
                assert reply.code == ResponseCode.NO_PERMISSION, reply.remark

    asyncio.run(main())


def test_a_consumer_with_permission_gets_the_messages_that_its_class_accepts(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with guarded(tmp_path) as (pair, _):
            address = pair.name_server_address
            async with Producer(address, credentials=ADMINISTRATOR) as producer:
                await producer.send(Message("Orders", b"1"))
                for number in (2, 3, 4, 5):
                    await producer.send(Message("Orders", b"%d" % number))
            subscriptions = {"Orders": ClassFilter("Even", EVEN.decode())}
            first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
            async with Consumer(
                address, "billing", subscriptions, credentials=UPLOADER, consume_from=first
            ) as consumer:
                got = set()
                async for message in consumer:
                    got.add(message.body)
                    if len(got) == 2:
                        break
                assert got == {b"2", b"4"}

    asyncio.run(main())
