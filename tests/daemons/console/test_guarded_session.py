"""Sessions below the pages: their refusals, for any caller."""

import asyncio
import re

import pytest

from mq.client.errors import ConnectError
from mq.daemons.console.guarded_session import BODIES, Forbidden, check_subjects
from mq.daemons.console.permissions import Permission
from mq.daemons.console.security.roles import User
from mq.protocol.bodies import LockBatchRequestBody, MessageQueue
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.flags import PullSysFlag
from mq.protocol.headers import HEADERS
from mq.protocol.requests import RequestKind
from tests.daemons.console.site import Consoles

VIEWER = User("v", {"*": "viewer"})
READER = User("r", {"*": "reader"})
LIMITED = User("l", {"*": "administrator"}, topics=("mine",), groups=("mine",))
BROKER = "127.0.0.1:9"


def refused(session: object, code: int, **fields: str) -> bool:
    """Return whether a request was not sent."""
    try:
        session.request(BROKER, Command(code, dict(fields))).cancel()  # type: ignore[attr-defined]
    except Forbidden:
        return True
    return False


def test_a_page_sends_nothing_but_reads(console: Consoles) -> None:
    async def main() -> None:
        async with console() as site:
            own, session = site.here.session, site.here.reading(READER)
            for code in RequestCode:
                reads = code.kind is RequestKind.READ
                assert refused(own, code) == refused(session, code) == (not reads), code
            for unknown in (0, 9999, -1):
                assert refused(session, unknown)
            commit = str(int(PullSysFlag.COMMIT_OFFSET))
            assert refused(session, RequestCode.PULL_MESSAGE, sysFlag=commit)
            with pytest.raises(Forbidden):
                session.send_oneway(BROKER, Command(RequestCode.SEND_MESSAGE))
            with session.blocking() as blocking, pytest.raises(Forbidden):
                await blocking.invoke(BROKER, Command(RequestCode.DELETE_TOPIC_IN_BROKER))

    asyncio.run(main())


def test_a_viewer_gets_no_bodies(console: Consoles) -> None:
    async def main() -> None:
        async with console() as site:
            viewer, reader = site.here.reading(VIEWER), site.here.reading(READER)
            for code in (RequestCode.PULL_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID):
                assert refused(viewer, code) and not refused(reader, code)
            assert not refused(viewer, RequestCode.GET_TOPIC_STATS_INFO, topic="T")

    asyncio.run(main())


def test_patterns_are_held_against_each_request(console: Consoles) -> None:
    async def main() -> None:
        async with console() as site:
            session = site.here.reading(LIMITED)
            code = RequestCode.PULL_MESSAGE
            assert not refused(session, code, topic="mine", consumerGroup="TOOLS")
            assert refused(session, code, topic="other", consumerGroup="TOOLS")
            assert not refused(session, code, topic="%DLQ%mine")
            assert refused(session, RequestCode.GET_CONSUME_STATS, consumerGroup="other")
            assert refused(session, RequestCode.VIEW_MESSAGE_BY_ID)
            changing = site.here.changing(LIMITED, 4, lambda address, command: None)  # type: ignore[arg-type]
            assert refused(changing, RequestCode.SEND_MESSAGE_V2, b="other")
            assert not refused(changing, RequestCode.SEND_MESSAGE_V2, b="mine")
            assert refused(changing, RequestCode.UPDATE_BROKER_CONFIG)
            for topic in ("mine", "%DLQ%mine", "other", "%DLQ%other"):
                queues = {MessageQueue(topic=topic, broker_name="b", queue_id=0)}
                body = LockBatchRequestBody(consumer_group="TOOLS", mq_set=queues).encode()
                command = Command(RequestCode.LOCK_BATCH_MQ, {}, body=body)
                if "mine" in topic:
                    changing.request(BROKER, command).cancel()
                else:
                    with pytest.raises(Forbidden):
                        changing.request(BROKER, command)

    asyncio.run(main())


def test_no_connection_goes_to_an_address_that_is_refused(console: Consoles) -> None:
    async def main() -> None:
        async with console() as site:
            site.here.refuse(lambda address: "not in brokerNetworks")
            session = site.here.reading(READER)
            with pytest.raises(ConnectError, match="brokerNetworks"):
                session.request(BROKER, Command(RequestCode.GET_BROKER_RUNTIME_INFO))
            with session.blocking() as blocking, pytest.raises(ConnectError, match="brokerNet"):
                await blocking.invoke(BROKER, Command(RequestCode.GET_BROKER_RUNTIME_INFO))
            await session.invoke_name_server(Command(RequestCode.GET_BROKER_CLUSTER_INFO))

    asyncio.run(main())


# Fields about a topic or group that are not the guarded subject.
_NO_SUBJECTS = {
    *("a", "producerGroup", "c", "defaultTopic"),  # the sender; the template of a new topic
    *("defaultTopicPerm", "defaultGroupPerm", "topicPerms", "groupPerms"),  # of an account
    *("topicSysFlag", "groupSysFlag", "topicFilterType", "defaultTopicQueueNums"),
    *("topicSeq", "maxTopicNum", "groupSeq", "maxGroupNum"),
    "liteTopic",  # below the topic, which is named in another field
}


def test_each_field_that_names_a_topic_or_group_is_held_against_the_patterns() -> None:
    found = 0
    for code, header in HEADERS.items():
        wires = [one.wire for one in header.FIELDS]
        named = [
            wire
            for wire in wires
            if (re.search("topic|group", wire, re.IGNORECASE) or wire in ("a", "b"))
            and wire not in _NO_SUBJECTS
        ]
        own = {wire: "mine" for wire in named}
        for wire in named:
            short = wire == "b" and code is RequestCode.SEND_REPLY_MESSAGE_V2  # refused in any case
            # Tools read topics with groups of their own.
            if short or (code in BODIES and "group" in wire.lower()):
                continue
            check_subjects(LIMITED, "test", Permission.READ, Command(code, own))
            with pytest.raises(Forbidden):
                other = Command(code, {**own, wire: "theirs"})
                check_subjects(LIMITED, "test", Permission.READ, other)
            found += 1
    assert found > 60
