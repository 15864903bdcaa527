"""Valid requests of every kind, and the responses of brokers when one field is missing."""

import asyncio
import json
import struct
from collections.abc import Mapping

from mq.client.errors import MQError
from mq.client.transport.session import Session
from mq.protocol.codes import RequestCode as Code
from mq.protocol.codes import ResponseCode
from mq.protocol.command import Command
from mq.protocol.message_id import decode_offset_id

TOPIC, GROUP = "Incomplete", "IncompleteGroup"
PRODUCERS = "IncompleteProducers"
_SILENCE_SECONDS = 3

SEND = {
    **{"a": PRODUCERS, "b": TOPIC, "c": "TBW102", "d": "4", "e": "0", "f": "0"},
    **{"g": "1700000000000", "h": "0", "i": "", "j": "0", "k": "false", "m": "false"},
}
_SEND_V1 = {
    **{"producerGroup": PRODUCERS, "topic": TOPIC, "defaultTopic": "TBW102"},
    **{"defaultTopicQueueNums": "4", "queueId": "0", "sysFlag": "0", "flag": "0"},
    **{"bornTimestamp": "1700000000000", "properties": "", "reconsumeTimes": "0"},
    **{"unitMode": "false", "batch": "false"},
}
_QUEUE = {"topic": TOPIC, "queueId": "0"}
_GROUP_QUEUE = {"consumerGroup": GROUP, **_QUEUE}
_NAMED = {"topic": TOPIC, "group": GROUP}

#: Valid requests to a broker: the fields, and the body.
REQUESTS: dict[Code, tuple[dict[str, str], bytes]] = {
    Code.SEND_MESSAGE: (_SEND_V1, b"x"),
    Code.SEND_MESSAGE_V2: (SEND, b"x"),
    Code.PULL_MESSAGE: (
        {
            **_GROUP_QUEUE,
            **{"queueOffset": "0", "maxMsgNums": "1", "sysFlag": "4", "commitOffset": "0"},
            **{"suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0"},
        },
        b"",
    ),
    Code.QUERY_MESSAGE: (
        {
            **{"topic": TOPIC, "key": "k", "maxNum": "8"},
            **{"beginTimestamp": "0", "endTimestamp": "9000000000000"},
        },
        b"",
    ),
    Code.UPDATE_CONSUMER_OFFSET: ({**_GROUP_QUEUE, "commitOffset": "0"}, b""),
    Code.QUERY_CONSUMER_OFFSET: (_GROUP_QUEUE, b""),
    Code.UPDATE_AND_CREATE_TOPIC: (
        {
            **{"topic": "IncompleteMade", "defaultTopic": "TBW102", "readQueueNums": "4"},
            **{"writeQueueNums": "4", "perm": "6", "topicFilterType": "SINGLE_TAG"},
            **{"topicSysFlag": "0", "order": "false"},
        },
        b"",
    ),
    Code.SEARCH_OFFSET_BY_TIMESTAMP: ({**_QUEUE, "timestamp": "0"}, b""),
    Code.GET_MAX_OFFSET: (_QUEUE, b""),
    Code.GET_MIN_OFFSET: (_QUEUE, b""),
    Code.GET_EARLIEST_MSG_STORETIME: (_QUEUE, b""),
    Code.VIEW_MESSAGE_BY_ID: ({"offset": "0"}, b""),
    Code.UNREGISTER_CLIENT: (
        {"clientID": "c", "producerGroup": PRODUCERS, "consumerGroup": GROUP},
        b"",
    ),
    Code.CONSUMER_SEND_MSG_BACK: (
        {"offset": "0", "group": GROUP, "delayLevel": "3", "originTopic": TOPIC},
        b"",
    ),
    Code.GET_CONSUMER_LIST_BY_GROUP: ({"consumerGroup": GROUP}, b""),
    Code.GET_TOPIC_STATS_INFO: ({"topic": TOPIC}, b""),
    Code.GET_CONSUMER_CONNECTION_LIST: ({"consumerGroup": GROUP}, b""),
    Code.GET_PRODUCER_CONNECTION_LIST: ({"producerGroup": PRODUCERS}, b""),
    Code.DELETE_SUBSCRIPTIONGROUP: ({"groupName": "IncompleteGone", "removeOffset": "true"}, b""),
    Code.GET_CONSUME_STATS: ({"consumerGroup": GROUP, "topic": TOPIC}, b""),
    Code.DELETE_TOPIC_IN_BROKER: ({"topic": "IncompleteMade"}, b""),
    Code.INVOKE_BROKER_TO_RESET_OFFSET: ({**_NAMED, "timestamp": "0", "isForce": "true"}, b""),
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: ({**_NAMED, "clientAddr": ""}, b""),
    Code.QUERY_TOPIC_CONSUME_BY_WHO: ({"topic": TOPIC}, b""),
    Code.QUERY_CONSUME_TIME_SPAN: (_NAMED, b""),
    Code.GET_CONSUMER_RUNNING_INFO: ({"consumerGroup": GROUP, "clientId": "c"}, b""),
    Code.QUERY_CORRECTION_OFFSET: (
        {"compareGroup": GROUP, "topic": TOPIC, "filterGroups": ""},
        b"",
    ),
    Code.CONSUME_MESSAGE_DIRECTLY: (
        {"consumerGroup": GROUP, "clientId": "c", "msgId": "", "brokerName": "b"},
        b"",
    ),
    Code.CLONE_GROUP_OFFSET: (
        {"srcGroup": GROUP, "destGroup": "IncompleteClone", "topic": TOPIC, "offline": "false"},
        b"",
    ),
    Code.VIEW_BROKER_STATS_DATA: ({"statsName": "TOPIC_PUT_NUMS", "statsKey": TOPIC}, b""),
    Code.GET_BROKER_CONSUME_STATS: ({"isOrder": "false"}, b""),
    Code.QUERY_CONSUME_QUEUE: (
        {**_GROUP_QUEUE, "index": "0", "count": "1"},
        b"",
    ),
    Code.RESUME_CHECK_HALF_MESSAGE: ({"msgId": ""}, b""),
    Code.GET_ALL_TOPIC_CONFIG: ({}, b""),
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: ({}, b""),
}

#: Valid requests to a name server.
NAME_SERVER_REQUESTS: dict[Code, tuple[dict[str, str], bytes]] = {
    Code.PUT_KV_CONFIG: ({"namespace": "n", "key": "put", "value": "v"}, b""),
    Code.GET_KV_CONFIG: ({"namespace": "n", "key": "k"}, b""),
    Code.GET_KVLIST_BY_NAMESPACE: ({"namespace": "n"}, b""),
    Code.DELETE_KV_CONFIG: ({"namespace": "n", "key": "gone"}, b""),
    Code.REGISTER_BROKER: (
        {
            **{"brokerName": "gone", "brokerAddr": "127.0.0.1:9", "clusterName": "c"},
            **{"haServerAddr": "127.0.0.1:8", "brokerId": "0", "compressed": "false"},
            **{"bodyCrc32": "0"},
        },
        b"",
    ),
    Code.QUERY_DATA_VERSION: (
        {
            **{"brokerName": "gone", "brokerAddr": "127.0.0.1:9", "clusterName": "c"},
            **{"brokerId": "0"},
        },
        b'{"timestamp":1,"counter":1}',
    ),
    Code.UNREGISTER_BROKER: (
        {
            **{"brokerName": "gone", "brokerAddr": "127.0.0.1:9", "clusterName": "c"},
            **{"brokerId": "0"},
        },
        b"",
    ),
    Code.GET_ROUTEINFO_BY_TOPIC: ({"topic": TOPIC}, b""),
    Code.WIPE_WRITE_PERM_OF_BROKER: ({"brokerName": "gone"}, b""),
    Code.ADD_WRITE_PERM_OF_BROKER: ({"brokerName": "gone"}, b""),
    Code.DELETE_TOPIC_IN_NAMESRV: ({"topic": "IncompleteMade"}, b""),
    Code.GET_TOPICS_BY_CLUSTER: ({"cluster": "DefaultCluster"}, b""),
}

#: A request, and the name of the field that it lacks; "" for none.
Case = tuple[Code, str]
_END = (
    *("producerGroup", "tranStateTableOffset", "commitLogOffset", "commitOrRollback"),
    *("fromTransactionCheck", "msgId", "transactionId"),
)
_SERVED = (ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND)


async def outcomes(namesrv: str, broker: str) -> dict[Case, str]:
    """The outcome of each request without each of its fields: served, refused or silence."""
    found: dict[Case, str] = {}
    async with Session(namesrv) as session:
        await set_up(session, broker)
        kept = {"namespace": "n", "key": "k", "value": "v"}
        await session.call(namesrv, Command(Code.PUT_KV_CONFIG, kept))
        for address, requests in ((broker, REQUESTS), (namesrv, NAME_SERVER_REQUESTS)):
            for code, (fields, body) in requests.items():
                for name in ("", *fields):
                    rest = _without(fields, name)
                    found[code, name] = await _outcome(session, address, code, rest, body)
        for name in ("", *_END, "-"):
            fields = await _prepared(session, broker)
            if name == "-":  # neither a commit nor a rollback
                fields["commitOrRollback"] = "5"
            rest = _without(fields, name)
            found[Code.END_TRANSACTION, name] = await _outcome(
                session, broker, Code.END_TRANSACTION, rest, b""
            )
    return found


async def set_up(session: Session, broker: str) -> None:
    """Create the topic and the group, and store a message."""
    made, _ = REQUESTS[Code.UPDATE_AND_CREATE_TOPIC]
    await session.call(
        broker, Command(Code.UPDATE_AND_CREATE_TOPIC, {**made, "topic": TOPIC}), timeout=10
    )
    group = {"groupName": GROUP, "retryQueueNums": 1, "retryMaxTimes": 16}
    body = json.dumps(group).encode()
    await session.call(broker, Command(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body))
    await session.call(broker, Command(Code.SEND_MESSAGE_V2, SEND, b"x"), timeout=10)


def _without(fields: Mapping[str, str], name: str) -> dict[str, str]:
    return {key: value for key, value in fields.items() if key != name}


async def _prepared(session: Session, broker: str) -> dict[str, str]:
    """The fields of a commit of a newly prepared message."""
    properties = f"TRAN_MSG\x01true\x02PGROUP\x01{PRODUCERS}\x02UNIQ_KEY\x01u"
    command = Command(Code.SEND_MESSAGE_V2, {**SEND, "f": "4", "i": properties}, b"half")
    sent = (await session.call(broker, command, timeout=10)).fields
    return {
        "producerGroup": PRODUCERS,
        "tranStateTableOffset": sent["queueOffset"],
        "commitLogOffset": str(decode_offset_id(sent["msgId"]).offset),
        "commitOrRollback": "8",
        **{"fromTransactionCheck": "false", "msgId": "u", "transactionId": "u"},
    }


async def _outcome(
    session: Session, address: str, code: Code, fields: dict[str, str], body: bytes
) -> str:
    try:
        reply = await session.invoke(address, Command(code, fields, body), _SILENCE_SECONDS)
    except (MQError, TimeoutError):
        return "silence"
    return "served" if reply.code in _SERVED else "refused"


async def outcome_of_header(address: str, header: str, body: bytes) -> str:
    """The outcome of a request whose header is this JSON text."""
    reader, writer = await asyncio.open_connection(*address.split(":"))
    raw = header.encode()
    try:
        writer.write(struct.pack(">II", 4 + len(raw) + len(body), len(raw)) + raw + body)
        async with asyncio.timeout(_SILENCE_SECONDS):
            (length,) = struct.unpack(">I", await reader.readexactly(4))
            reply = await reader.readexactly(length)
    except (TimeoutError, asyncio.IncompleteReadError):
        return "silence"
    finally:
        writer.close()
    (size,) = struct.unpack_from(">I", reply)
    code = json.loads(reply[4 : 4 + (size & 0xFFFFFF)])["code"]
    return "served" if code in _SERVED else "refused"
