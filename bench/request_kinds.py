"""Requests of all kinds as clients send them, for `bench.requests`."""

import time
from collections.abc import Callable, Sequence

import orjson

from mq.protocol.codes import RequestCode
from mq.protocol.command import ROCKETMQ, Command
from mq.protocol.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from mq.protocol.message_id import decode_offset_id
from mq.protocol.pop_receipt import Receipt

TOPIC, GROUP, QUEUES = "requests", "G", 8
BODY = b"x" * 1024
DELAYED = "\x02DELAY\x011"
PREPARED = "\x02TRAN_MSG\x01true\x02PGROUP\x01P"

Replies = Sequence[Command]


def send(number: int, properties: str = "", sys_flag: int = 0) -> dict[str, str]:
    usual = f"KEYS\x01k{number}\x02UNIQ_KEY\x01{number:032X}\x02WAIT\x01true\x02TAGS\x01t"
    return {
        **{"a": "P", "b": TOPIC, "c": "TBW102", "d": str(QUEUES), "e": str(number % QUEUES)},
        **{"f": str(sys_flag), "g": str(int(time.time() * 1000)), "h": "0"},
        **{"i": usual + properties, "j": "0", "k": "false", "m": "false"},
    }


def sends(count: int, properties: str = "", sys_flag: int = 0) -> list[Command]:
    """Return sends as from Java's producers, with further properties."""
    code = RequestCode.SEND_MESSAGE_V2
    return [Command(code, send(n, properties, sys_flag), BODY) for n in range(count)]


def in_words(count: int) -> list[Command]:
    """Return sends with the first version of the header."""
    words = {declared.name: declared.wire for declared in SendMessageRequestHeader.FIELDS}
    names = {one.wire: words.get(one.name, "") for one in SendMessageRequestHeaderV2.FIELDS}
    code = RequestCode.SEND_MESSAGE
    headers = ({names[key]: text for key, text in send(n).items()} for n in range(count))
    return [Command(code, header, BODY) for header in headers]


def in_binary(count: int) -> list[Command]:
    """Return sends with headers in RocketMQ's binary form."""
    commands = sends(count)
    for command in commands:
        command.serialization = ROCKETMQ
    return commands


def ends(halves: Replies) -> list[Command]:
    """Return commits of half messages, from the replies to their sends."""
    ends = []
    for half in halves:
        place = decode_offset_id(half.fields["msgId"]).offset
        fields = {"producerGroup": "P", "tranStateTableOffset": half.fields["queueOffset"]}
        fields |= {"commitLogOffset": str(place), "commitOrRollback": "8", "msgId": "0"}
        fields |= {"fromTransactionCheck": "false", "transactionId": "0"}
        ends.append(Command(RequestCode.END_TRANSACTION, fields))
    return ends


def given_back(sent: Replies) -> list[Command]:
    """Return send-backs of messages that a group could not consume, from the replies to their
    sends.
    """
    common = {"group": GROUP, "delayLevel": "1", "originTopic": TOPIC, "unitMode": "false"}
    code = RequestCode.CONSUMER_SEND_MSG_BACK
    backs = []
    for reply in sent:
        message_id = reply.fields["msgId"]
        named = {"offset": str(decode_offset_id(message_id).offset), "originMsgId": message_id}
        backs.append(Command(code, {**common, **named, "maxReconsumeTimes": "16"}))
    return backs


def of_queues(code: int, count: int, more: Callable[[int], dict[str, str]]) -> list[Command]:
    """Return requests that name a topic and each of its queues in turn."""
    named = ({"topic": TOPIC, "queueId": str(n % QUEUES), **more(n)} for n in range(count))
    return [Command(code, fields) for fields in named]


def pull(number: int) -> dict[str, str]:
    fields = {"consumerGroup": GROUP, "queueOffset": str(number // QUEUES), "maxMsgNums": "1"}
    fields |= {"sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "15000"}
    return fields | {"subscription": "*", "subVersion": "1", "expressionType": "TAG"}


def heartbeat(number: int) -> Command:
    """Return a heartbeat of one of fifty members, each alone in its group."""
    topic = {"topic": TOPIC, "subString": "*", "subVersion": 1, "expressionType": "TAG"}
    member = {
        "groupName": f"{GROUP}{number % 50}",
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [topic],
    }
    body = {"clientID": f"c{number % 50}", "consumerDataSet": [member], "producerDataSet": []}
    return Command(RequestCode.HEART_BEAT, None, orjson.dumps(body))


def committed(number: int) -> dict[str, str]:
    return {"consumerGroup": GROUP, "commitOffset": str(number // QUEUES)}


def of_group(number: int) -> dict[str, str]:
    return {"consumerGroup": GROUP}


def at_time(number: int) -> dict[str, str]:
    return {"timestamp": str(int(time.time() * 1000) - number)}


def pop(most: int) -> Command:
    """Return a pop of up to `most` messages of any queue, hidden for a minute."""
    fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "-1", "maxMsgNums": str(most)}
    fields |= {"invisibleTime": "60000", "pollTime": "0", "initMode": "0", "order": "false"}
    return Command(RequestCode.POP_MESSAGE, fields | {"bornTime": str(int(time.time() * 1000))})


def acknowledgements(popped: Command, broker_name: str) -> list[Command]:
    """Return an acknowledgement for each message of a reply, as Java's client sends it."""
    fields = popped.fields
    names = ("popTime", "invisibleTime", "reviveQid")
    pop_time, invisible, revive_queue = (int(fields[name]) for name in names)
    starts = {}
    for part in fields["startOffsetInfo"].split(";"):
        mark, queue_id, start = part.split(" ")
        starts[mark, queue_id] = start
    acks = []
    for part in fields["msgOffsetInfo"].split(";"):
        mark, queue_id, offsets = part.split(" ")
        for offset in offsets.split(","):
            receipt = Receipt(
                int(starts[mark, queue_id]),
                pop_time,
                invisible,
                revive_queue,
                mark,
                broker_name,
                int(queue_id),
                int(offset),
            )
            named = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": queue_id}
            named |= {"offset": offset, "extraInfo": receipt.encode()}
            acks.append(Command(RequestCode.ACK_MESSAGE, named))
    return acks
