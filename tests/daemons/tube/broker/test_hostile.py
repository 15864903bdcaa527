"""Requests with arbitrary content: each is answered, without other effects."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mq.client.tube.connection import TubeConnection
from mq.daemons.tube.broker.app import Broker
from mq.protocol.tube.codes import Method
from mq.protocol.tube.errors import RemoteFailure
from mq.protocol.tube.messages import (
    CommitOffsetRequestC2B,
    GetMessageRequestC2B,
    HeartBeatRequestC2B,
    RegisterRequestC2B,
    SendMessageRequestP2B,
)
from tests.conftest import share
from tests.daemons.tube.broker.harness import Client, bodies, run

NAMES = st.sampled_from(["demo", "group", "client", "", " demo ", "__offset_history__", "x" * 1025])
TEXT = NAMES | st.text(max_size=20)
INT = st.sampled_from([0, 1, 2, 10_000, 10_002, -1, -2, 31, 32]) | st.integers(
    -(1 << 31), (1 << 31) - 1
)
LONG = st.sampled_from([0, 28, -1]) | st.integers(-(1 << 63), (1 << 63) - 1)
FLAG = st.booleans()
AUTH = st.fixed_dictionaries({"visitAuthorizedToken": LONG}, optional={"authAuthorizedToken": TEXT})

REQUESTS = {
    Method.SEND_MESSAGE_P2B: (
        SendMessageRequestP2B,
        st.fixed_dictionaries(
            {"clientId": TEXT, "topicName": TEXT, "partitionId": INT, "data": st.binary(max_size=9),
             "flag": INT, "checkSum": INT, "sentAddr": INT},
            optional={"msgType": TEXT, "msgTime": TEXT, "authInfo": AUTH},
        ),
    ),
    Method.CONSUMER_REGISTER_C2B: (
        RegisterRequestC2B,
        st.fixed_dictionaries(
            {"opType": INT, "clientId": TEXT, "groupName": TEXT, "topicName": TEXT,
             "partitionId": INT, "readStatus": INT},
            optional={"filterCondStr": st.lists(TEXT, max_size=3), "currOffset": LONG,
                      "sessionKey": TEXT, "sessionTime": LONG, "qryPriorityId": INT,
                      "authInfo": AUTH},
        ),
    ),
    Method.CONSUMER_HEARTBEAT_C2B: (
        HeartBeatRequestC2B,
        st.fixed_dictionaries(
            {"clientId": TEXT, "groupName": TEXT, "readStatus": INT},
            optional={"partitionInfo": st.lists(TEXT | st.just("1:h:1#demo:0"), max_size=3),
                      "authInfo": AUTH},
        ),
    ),
    Method.GET_MESSAGES_C2B: (
        GetMessageRequestC2B,
        st.fixed_dictionaries(
            {"clientId": TEXT, "groupName": TEXT, "topicName": TEXT, "partitionId": INT},
            optional={"lastPackConsumed": FLAG, "manualCommitOffset": FLAG, "escFlowCtrl": FLAG},
        ),
    ),
    Method.CONSUMER_COMMIT_C2B: (
        CommitOffsetRequestC2B,
        st.fixed_dictionaries(
            {"clientId": TEXT, "groupName": TEXT, "topicName": TEXT, "partitionId": INT},
            optional={"lastPackConsumed": FLAG},
        ),
    ),
}  # fmt: skip

CALLS = st.one_of(
    *(
        st.tuples(st.just(method), st.builds(lambda kind, fields: kind(**fields), st.just(kind), f))
        for method, (kind, f) in REQUESTS.items()
    )
).map(lambda call: (call[0], call[1].SerializeToString()))
GARBAGE = st.tuples(st.sampled_from(list(REQUESTS)), st.binary(max_size=60))


@given(calls=st.lists(CALLS | GARBAGE, min_size=5, max_size=60))
@settings(deadline=None, max_examples=share(40), suppress_health_check=list(HealthCheck))
def test_each_request_is_answered(
    calls: list[tuple[Method, bytes]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    async def check(broker: Broker, client: Client) -> None:
        connection: TubeConnection = client.connection
        for method, body in calls:
            try:
                await connection.call(method, body, 30)
            except RemoteFailure as failure:
                assert "InvalidProtocolBuffer" in failure.exception
        assert broker.listeners["main"].counters["handler_failures"] == 0
        await client.send(b"x", partitionId=1, clientId="sane")
        await client.register(partitionId=1, groupName="sane", clientId="sane")
        answer = await client.get(partitionId=1, groupName="sane", clientId="sane")
        assert bodies(answer)[-1:] == [b"x"]
        assert await asyncio.to_thread(_names, tmp) <= {
            "demo-0", "demo-1", "__offset_history__-0", "offsetDir", "topics.json", "lock"
        }  # fmt: skip

    tmp = tmp_path_factory.mktemp("broker")
    run(tmp, check)


def _names(folder: Path) -> set[Any]:
    return {path.name for path in (folder / "store").iterdir()}
