"""Damaged inputs for all readers of a TubeMQ peer's bytes.

No reader may raise anything but its declared errors. The seed is fixed, so failures are
reproducible.
"""

import random
from collections.abc import Callable, Sequence

import pytest

from mq.protocol.tube import messages, payload, rpc, settings, strings
from mq.protocol.tube.codes import Method
from mq.protocol.tube.errors import (
    FrameError,
    MalformedPayload,
    MalformedRpc,
    MalformedText,
    RemoteFailure,
)
from mq.protocol.tube.flow_control import FlowControl
from mq.protocol.tube.frame import FrameDecoder, encode_frame
from mq.protocol.tube.signature import BrokerToken
from tests.conftest import share
from tests.fuzzing.mutation import mutated
from tests.protocol.tube.examples import EXAMPLES, LIMIT, LOW, POLLS, rules
from tests.protocol.tube.kinds import KINDS

SEND = messages.SendMessageRequestP2B(
    clientId="c", topicName="t", partitionId=1, data=b"body", flag=0, checkSum=-1, sentAddr=0
)
GOT = messages.GetMessageResponseB2C(
    success=True,
    errCode=200,
    messages=[messages.TransferedMessage(messageId=1, checkSum=2, payLoadData=b"x", flag=0)] * 3,
)
EVENT = messages.HeartResponseM2C(
    success=True,
    errCode=200,
    errMsg="OK!",
    event=messages.EventProto(rebalanceId=5, opType=1, subscribeInfo=[EXAMPLES[5][0]]),
    authorizedInfo=messages.MasterAuthorizedInfo(visitAuthorizedToken=5),
)
BODIES = [message.SerializeToString() for message in (SEND, GOT, EVENT)]
FRAMES = [
    *(rpc.encode_request(7, Method.SEND_MESSAGE_P2B, body, 9500) for body in BODIES),
    *(rpc.encode_response(7, Method.GET_MESSAGES_C2B, body) for body in BODIES),
    rpc.encode_failure(7, rpc.FATAL, "StandbyException", "why"),
    encode_frame(1, bytes(20_000)),
]
PAYLOADS = [FrameDecoder().feed(frame)[0][1] for frame in FRAMES[:-1]]
TEXTS = [text.encode() for text, _ in EXAMPLES]
PARSERS: list[Callable[[str], object]] = [
    *{type(value).parse for _, value in EXAMPLES},  # type: ignore[attr-defined]
    strings.parse_addresses,
    settings.BrokerDefaults.parse,
    settings.TopicSettings.parse,
    BrokerToken.parse,
]


def read_stream(data: bytes) -> None:
    decoder = FrameDecoder(max_chunks=16)
    step = len(data) // 3 + 1
    for at in range(0, len(data), step):
        decoder.feed(data[at : at + step])
        assert decoder.held <= 16 * 8196 + 12 + step


def read_rpc(data: bytes) -> None:
    request = rpc.decode_request(1, data)
    assert (type(request.method), type(request.body)) == (int, bytes)


def read_answer(data: bytes) -> None:
    assert type(rpc.decode_response(data)) is bytes


def read_message(data: bytes) -> None:
    messages.parse(KINDS[len(data) % len(KINDS)], data)


def read_payload(data: bytes) -> None:
    body, text = payload.decode(data, 1)
    payload.parse_attributes(text)
    assert len(body) <= len(data)


def read_text(data: bytes) -> None:
    PARSERS[len(data) % len(PARSERS)](data.decode("latin-1"))


def read_rules(data: bytes) -> None:
    FlowControl.parse(data.decode("latin-1"))


CASES: list[tuple[str, Callable[[bytes], None], Sequence[bytes], int, tuple[type[Exception], ...]]]
CASES = [
    ("stream", read_stream, FRAMES, 20_000, (FrameError,)),
    ("request", read_rpc, PAYLOADS, 20_000, (MalformedRpc,)),
    ("answer", read_answer, PAYLOADS, 20_000, (MalformedRpc, RemoteFailure)),
    ("message", read_message, BODIES, 20_000, (MalformedRpc,)),
    ("payload", read_payload, [b"\0\0\0\x03a=1hello"], 10_000, (MalformedPayload,)),
    ("text", read_text, TEXTS, 40_000, (MalformedText,)),
    (
        "rules",
        read_rules,
        [rules(0, LIMIT).encode(), rules(1, POLLS).encode(), rules(3, LOW).encode()],
        10_000,
        (MalformedText,),
    ),
]


@pytest.mark.more
@pytest.mark.parametrize(
    ("name", "read", "seeds", "count", "declared"), CASES, ids=[case[0] for case in CASES]
)
def test_damaged_input_is_refused_or_read(
    name: str,
    read: Callable[[bytes], None],
    seeds: Sequence[bytes],
    count: int,
    declared: tuple[type[Exception], ...],
) -> None:
    count = share(count)
    chance = random.Random(f"tube {name}")
    refused = 0
    for _ in range(count):
        data = mutated(chance, seeds)
        try:
            read(data)
        except declared:
            refused += 1
        except Exception as error:
            error.add_note(f"input {data!r}")
            raise
    assert 0 < refused < count
