"""Probes: each observes at a broker the behaviour stated by one row of docs/differences.md.

A probe returns its observation in the words of the table.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from mq.client.transport.session import Session
from mq.protocol.batch import encode_batch
from mq.protocol.bodies import CheckClientRequestBody, SubscriptionData, SubscriptionGroupConfig
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.headers.send import SendMessageRequestHeaderV2
from mq.protocol.message import Message, StoredMessage, decode_records

# How long a probe waits for a message, in seconds. The longest delay of a probe is 10 s.
SECONDS = 20.0


@dataclass
class Site:
    """The addresses of a name server and a broker, and requests to them."""

    session: Session
    name_server: str
    broker: str

    async def ask(
        self, code: int, fields: dict[str, str] | None = None, body: bytes = b""
    ) -> Command:
        return await self.session.invoke(self.broker, Command(code, fields or {}, body), 15)

    async def make(self, topic: str, **fields: str) -> Command:
        """Create a topic with one queue."""
        header = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": "1"}
        header |= {"writeQueueNums": "1", "perm": "6", "topicFilterType": "SINGLE_TAG"}
        header |= {"topicSysFlag": "0", "order": "false", **fields}
        return await self.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    async def send(
        self,
        topic: str,
        body: bytes = b"x",
        properties: dict[str, str] | None = None,
        flag: int = 0,
    ) -> Command:
        """Store a message in queue 0; `flag` is the system flag."""
        return await self.ask(RequestCode.SEND_MESSAGE, sent(topic, properties, flag), body)

    async def read(self, topic: str, offset: int = 0, **fields: str) -> list[StoredMessage]:
        """The messages of queue 0 from an offset on that can be pulled now."""
        header = {"consumerGroup": "probe", "topic": topic, "queueId": "0"}
        header |= {"queueOffset": str(offset), "maxMsgNums": "32", "sysFlag": "4"}
        header |= {"commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*"}
        header |= {"subVersion": "0", "expressionType": "TAG", **fields}
        reply = await self.ask(RequestCode.PULL_MESSAGE, header)
        return decode_records(reply.body) if reply.code == ResponseCode.SUCCESS else []

    async def first(self, topic: str) -> StoredMessage | None:
        """Wait for the first message of queue 0; None after SECONDS."""
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            if found := await self.read(topic):
                return found[0]
            await asyncio.sleep(0.2)
        return None


Probe = Callable[[Site], Awaitable[str]]


def sent(topic: str, properties: dict[str, str] | None, flag: int) -> dict[str, str]:
    """The header of a send."""
    text = "\x02".join(f"{key}\x01{value}" for key, value in (properties or {}).items())
    return {
        **{"producerGroup": "probes", "topic": topic, "defaultTopic": "TBW102"},
        **{"defaultTopicQueueNums": "4", "queueId": "0", "sysFlag": str(flag), "flag": "0"},
        **{"bornTimestamp": str(int(time.time() * 1000)), "properties": text},
        **{"reconsumeTimes": "0", "unitMode": "false", "batch": "false"},
    }


def name(reply: Command) -> str:
    """The name of a reply's response code."""
    return ResponseCode(reply.code).name


async def long_topic(site: Site) -> str:
    return name(await site.make("t" * 128))


async def long_group(site: Site) -> str:
    group = "g" * 125
    await site.make("Long")
    body = SubscriptionGroupConfig(group_name=group).encode()
    await site.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
    reply = await send_back(site, "Long", group)
    return "taken" if reply.code == ResponseCode.SUCCESS else "refused"


async def send_back(site: Site, topic: str, group: str, **properties: str) -> Command:
    """Store a message and send it back as a group that failed to consume it, to be redelivered in 1
    s.
    """
    await site.send(topic, properties=properties)
    message = await site.first(topic)
    assert message is not None
    fields = {"offset": str(message.physical_offset), "group": group, "delayLevel": "1"}
    fields |= {"originTopic": topic, "originMsgId": message.offset_id, "unitMode": "false"}
    fields |= {"maxReconsumeTimes": "16"}
    return await site.ask(RequestCode.CONSUMER_SEND_MSG_BACK, fields)


async def forged_origin(site: Site) -> str:
    await site.make("Forged")
    body = SubscriptionGroupConfig(group_name="origins").encode()
    await site.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
    await send_back(site, "Forged", "origins", RETRY_TOPIC="Payments")
    found = await site.first("%RETRY%origins")
    assert found is not None
    return f"redelivered as topic {found.properties['RETRY_TOPIC']}"


async def past_timer(site: Site) -> str:
    await site.make("Past")
    due = str(int(time.time() * 1000) - 60_000)
    reply = await site.send("Past", properties={"TIMER_DELIVER_MS": due})
    found = await site.first("Past")
    return "delivered at once" if found else f"not delivered, {name(reply)}"


async def text_after_expression(site: Site) -> str:
    wanted = SubscriptionData(topic="T", sub_string="a = 1 b", expression_type="SQL92")
    body = CheckClientRequestBody(client_id="c", group="g", subscription_data=wanted).encode()
    return name(await site.ask(RequestCode.CHECK_CLIENT_CONFIG, {}, body))


async def absent_property(site: Site) -> str:
    await site.make("Absent")
    await site.send("Absent", properties={"b": "1"})
    assert await site.first("Absent")
    wanted = {}
    for expression in ("a <> 'x'", "NOT (a = 'x')", "a IS NULL"):
        found = await site.read("Absent", 0, expressionType="SQL92", subscription=expression)
        wanted[expression] = "delivered" if found else "filtered out"
    return "; ".join(f"`{text}`: {outcome}" for text, outcome in wanted.items())


async def delayed_half(site: Site) -> str:
    await site.make("Halves")
    properties = {"TRAN_MSG": "true", "PGROUP": "probes", "UNIQ_KEY": "7F" * 16, "DELAY": "3"}
    reply = await site.send("Halves", properties=properties, flag=4)
    if reply.code != ResponseCode.SUCCESS:
        return name(reply)
    message_id, offset = reply.fields["msgId"], reply.fields["queueOffset"]
    fields = {"producerGroup": "probes", "tranStateTableOffset": offset}
    fields |= {"commitLogOffset": str(int(message_id[16:], 16)), "commitOrRollback": "8"}
    fields |= {"fromTransactionCheck": "false", "msgId": message_id, "transactionId": message_id}
    began = time.monotonic()
    end = Command(RequestCode.END_TRANSACTION, fields)
    ended = await site.session.invoke(site.broker, end, 15)
    if ended.code != ResponseCode.SUCCESS:
        return f"not committed, {name(ended)}"
    if await site.first("Halves") is None:
        return "not delivered"
    return "delivered after the delay" if time.monotonic() - began > 5 else "delivered at commit"


async def unknown_group(site: Site) -> str:
    reply = await site.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "never-seen"})
    return "created" if reply.code == ResponseCode.SUCCESS else name(reply)


async def unknown_attribute(site: Site) -> str:
    return name(await site.make("Attributed", attributes="+no.such=1"))


async def compacted_topic(site: Site) -> str:
    return name(await site.make("Compacted", attributes="+cleanup.policy=COMPACTION"))


async def unknown_setting(site: Site) -> str:
    return name(await site.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"noSuchSetting=1\n"))


async def store_path(site: Site) -> str:
    return name(await site.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"storePathCommitLog=/x\n"))


async def many_queues(site: Site) -> str:
    fields = {"namespace": "ORDER_TOPIC_CONFIG", "key": "Huge", "value": "b:2000000"}
    command = Command(RequestCode.PUT_KV_CONFIG, fields)
    return name(await site.session.invoke(site.name_server, command, 15))


async def too_many_queues(site: Site) -> str:
    return name(await site.make("Wide", readQueueNums="70000", writeQueueNums="70000"))


async def transaction_checks(site: Site) -> str:
    reply = await site.ask(RequestCode.GET_BROKER_CONFIG)
    lines = dict(line.partition("=")[::2] for line in bytes(reply.body).decode().splitlines())
    first, most = int(lines["transactionTimeOut"]) // 1000, lines["transactionCheckMax"]
    pause = int(lines["transactionCheckInterval"]) // 1000
    return f"{most} checks, one each {pause} s, the first after {first} s"


async def search_by_time(site: Site, **boundary: str) -> str:
    topic = "Searched" + "".join(boundary.values())
    await site.make(topic)
    for _ in range(2):
        await site.send(topic)
    assert await site.first(topic)
    later = str(int(time.time() * 1000) + 3_600_000)
    fields = {"topic": topic, "queueId": "0", "timestamp": later, **boundary}
    reply = await site.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields)
    return {"1": "the last message", "2": "the end"}[reply.fields["offset"]]


async def search_with_lower_bound(site: Site) -> str:
    return await search_by_time(site, boundaryType="LOWER")


async def timed_batch(site: Site) -> str:
    await site.make("TimedBatch")
    due = str(int(time.time() * 1000) + 5000)
    message = Message("TimedBatch", b"x")
    message.system["TIMER_DELIVER_MS"] = due
    header = SendMessageRequestHeaderV2(
        producer_group="probes",
        topic="TimedBatch",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=int(time.time() * 1000),
        flag=0,
        properties="",
        batch=True,
    )
    fields = header.encode()
    reply = await site.ask(RequestCode.SEND_BATCH_MESSAGE, fields, encode_batch([message]))
    if reply.code != ResponseCode.SUCCESS:
        return f"refused, {name(reply)}"
    return "delivered at once" if await early(site, "TimedBatch") else "delivered when due"


async def early(site: Site, topic: str) -> bool:
    """Whether the first message of a topic arrives well before it is due."""
    began = time.monotonic()
    return await site.first(topic) is not None and time.monotonic() - began < 3


PROBES: dict[str, Probe] = {
    "topic of 128 characters": long_topic,
    "failed message of a group of 125 characters": long_group,
    "`RETRY_TOPIC` set by the sender of a message that fails": forged_origin,
    "message with `TIMER_DELIVER_MS` in the past": past_timer,
    "SQL92: text after a complete expression": text_after_expression,
    "SQL92: message without the property `a`": absent_property,
    "search by time, later than all messages": search_by_time,
    "the same with `boundaryType=LOWER`": search_with_lower_bound,
    "batch whose message has `TIMER_DELIVER_MS` in the future": timed_batch,
    "transactional message with a delay level": delayed_half,
    "checks of a transaction without an end (defaults)": transaction_checks,
    "settings of a group that was never used (352)": unknown_group,
    "topic with an unknown attribute": unknown_attribute,
    "topic with `cleanup.policy=COMPACTION`": compacted_topic,
    "topic with 70,000 queues": too_many_queues,
    "order configuration with 2,000,000 queues": many_queues,
    "update of an unknown setting": unknown_setting,
    "update of `storePathCommitLog`": store_path,
}
