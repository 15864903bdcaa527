"""Reading a topic when a broker's answers have gaps."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from mq.daemons.channel import Channel
from mq.protocol.bodies import BrokerData, QueueData, TopicRouteData
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.message import StoredMessage, encode_record
from tests.cli.scripted import answer, daemon
from tests.cli.support import Mq

Pull = Callable[[int], tuple[ResponseCode, int, bytes]]


def records(begin: int, end: int) -> bytes:
    return b"".join(
        encode_record(StoredMessage("T", b"%d" % offset, {}, queue_offset=offset))
        for offset in range(begin, end)
    )


def exported(mq: Mq, pull: Pull, *options: str) -> Any:
    """Run `mq message export -` with a queue of the offsets 0 to 9 that is pulled in this way."""

    def route(request: Command, channel: Channel) -> Command:
        host, port = channel.local_address
        route = TopicRouteData(
            queue_datas=[QueueData(broker_name="b", read_queue_nums=1, write_queue_nums=1, perm=6)],
            broker_datas=[
                BrokerData(cluster="c", broker_name="b", broker_addrs={0: f"{host}:{port}"})
            ],
        )
        return request.reply(body=route.encode())

    def answer_pull(request: Command, channel: Channel) -> Command:
        code, after, body = pull(int(request.fields["queueOffset"]))
        fields = {
            "nextBeginOffset": str(after),
            "minOffset": "0",
            "maxOffset": "10",
            "suggestWhichBrokerId": "0",
        }
        return request.reply(code, fields, body)

    handlers = {
        RequestCode.GET_ROUTEINFO_BY_TOPIC: route,
        RequestCode.GET_MIN_OFFSET: answer(fields={"offset": "0"}),
        RequestCode.GET_MAX_OFFSET: answer(fields={"offset": "10"}),
        RequestCode.PULL_MESSAGE: answer_pull,
    }
    with daemon(handlers) as address:
        return mq("message", "export", "-", "-t", "T", "-n", address, *options)


@pytest.mark.parametrize("code", [ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED])
def test_what_lies_behind_a_gap_is_exported_and_the_gap_reported(
    mq: Mq, code: ResponseCode
) -> None:
    def pull(offset: int) -> tuple[ResponseCode, int, bytes]:
        if offset < 6:
            return code, 6, b""
        return ResponseCode.SUCCESS, 10, records(6, 10)

    finished = exported(mq, pull)
    assert [json.loads(line)["body"] for line in finished.out.splitlines()] == ["6", "7", "8", "9"]
    assert finished.status == 1
    assert "b:0: 6 messages from offset 0 on are not there any more" in finished.err


def test_a_queue_that_ends_before_it_said_is_a_failure(
    mq: Mq, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mq.client.operations.messages.reading.RETRY_SECONDS", 0.0)

    def pull(offset: int) -> tuple[ResponseCode, int, bytes]:
        if offset < 6:
            return ResponseCode.SUCCESS, 6, records(0, 6)
        return ResponseCode.PULL_NOT_FOUND, 6, b""

    finished = exported(mq, pull)
    assert len(finished.out.splitlines()) == 6
    assert finished.status == 1
    assert "messages up to offset 10, and gives none from 6 on" in finished.err


def test_a_filter_that_lets_nothing_through_leaves_no_gap(mq: Mq) -> None:
    def pull(offset: int) -> tuple[ResponseCode, int, bytes]:
        if offset < 6:
            return ResponseCode.PULL_RETRY_IMMEDIATELY, 6, b""
        return ResponseCode.SUCCESS, 10, records(6, 10)

    finished = exported(mq, pull, "--tag", "*")
    assert finished.status == 0, finished.err
