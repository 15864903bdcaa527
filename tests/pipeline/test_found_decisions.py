"""The record of the log that counts as the decision about a batch, and when there is none."""

import asyncio
import time
import uuid
from collections.abc import Callable

import orjson
import pytest

from mq.daemons.channel import Channel
from mq.daemons.dispatch import Handler
from mq.protocol.bodies import BrokerData, QueueData, TopicRouteData
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.message import StoredMessage
from mq.protocol.record_codec import encode_record
from tests.client.scripted import scripted
from tests.pipeline.conftest import require_streams

require_streams()


from mq.pipeline import decisions  # noqa: E402
from mq.pipeline.decisions import DecisionLog  # noqa: E402
from mq.pipeline.errors import CommitFailed  # noqa: E402
from mq.pipeline.write_options import parse_write_options  # noqa: E402


def offsets(following: int, end: int, suggested: int) -> dict[str, str]:
    """Return the offsets in the reply to a pull of a queue that starts at 0."""
    numbers = {"minOffset": 0, "maxOffset": end, "nextBeginOffset": following}
    numbers["suggestWhichBrokerId"] = suggested
    return {name: str(number) for name, number in numbers.items()}


class Clock:
    """A `time` module with an offset that the test controls."""

    def __init__(self) -> None:
        self.passed = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.passed

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def time(self) -> float:
        return time.time()


def found_at(
    query: str, pull: Handler, pull_of_replica: Handler, least: Callable[[], int] = lambda: 0
) -> object:
    """Search the decision about batch 3 in a log of two records that starts at offset `least()`."""

    def offset(of: Callable[[], int]) -> Handler:
        return lambda request, channel: request.reply(0, {"offset": str(of())})

    def find(name_server: str) -> object:
        given = {"nameServer": name_server, "topic": "T", "exactlyOnce": "true"}
        options = parse_write_options({**given, "sendTimeoutMs": "1000"})
        with options.open_session(5) as session:
            return DecisionLog(session, options, 3).find(query, 3)

    async def script() -> object:
        codes = RequestCode
        master: dict[int, Handler] = {
            codes.GET_MIN_OFFSET: offset(least),
            codes.GET_MAX_OFFSET: offset(lambda: 2),
            codes.PULL_MESSAGE: pull,
        }
        async with (
            scripted(master) as first,
            scripted({codes.PULL_MESSAGE: pull_of_replica}) as second,
        ):
            queues = QueueData(broker_name="a", read_queue_nums=1, write_queue_nums=1, perm=6)
            addresses = {0: first, 1: second}
            route = TopicRouteData(
                queue_datas=[queues],
                broker_datas=[BrokerData(cluster="c", broker_name="a", broker_addrs=addresses)],
            )

            def told(request: Command, channel: Channel) -> Command:
                return request.reply(0, None, route.encode())

            async with scripted({codes.GET_ROUTEINFO_BY_TOPIC: told}) as name_server:
                return await asyncio.to_thread(find, name_server)

    return asyncio.run(script())


def test_only_the_master_is_queried_for_a_decision() -> None:
    """With the reply of a replica that lacks it, or starts after it, the batch would be committed
    twice.
    """
    query = str(uuid.uuid4())
    record = {"query": query, "batch": 3, "token": "t", "ends": {}, "parts": []}
    others = {**record, "query": "other"}
    bodies = [(f"D{one['query']}", orjson.dumps(one)) for one in (others, record)]
    asked: list[str] = []

    def pull(request: Command, channel: Channel) -> Command:
        """Return one message at a time, and suggest the replica for the next one."""
        number = int(request.fields["queueOffset"])
        asked.append(f"master {number}")
        tag, body = bodies[number]
        message = StoredMessage(request.fields["topic"], body, {"TAGS": tag}, queue_offset=number)
        return request.reply(0, offsets(number + 1, 2, 1), encode_record(message))

    def pull_of_replica(request: Command, channel: Channel) -> Command:
        asked.append(f"replica {request.fields['queueOffset']}")
        return request.reply(ResponseCode.PULL_OFFSET_MOVED, offsets(2, 2, 1))

    assert found_at(query, pull, pull_of_replica) is not None
    assert asked == ["master 0", "master 1"]


def test_an_unreadable_decision_is_awaited_even_after_long_reading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    monkeypatch.setattr(decisions, "time", clock)
    query = str(uuid.uuid4())
    record = {"query": query, "batch": 3, "token": "t", "ends": {}, "parts": []}
    asked: list[int] = []

    def pull(request: Command, channel: Channel) -> Command:
        """Return one message at a time, after an hour each; the second one only at the second
        request.
        """
        clock.passed += 3600.0
        number = int(request.fields["queueOffset"])
        asked.append(number)
        if asked == [0, 1]:
            clock.passed -= 3600.0
            return request.reply(ResponseCode.PULL_NOT_FOUND, offsets(1, 1, 0))
        tags = {"TAGS": f"D{query}"}
        message = StoredMessage("L", orjson.dumps(record), tags, queue_offset=number)
        return request.reply(0, offsets(number + 1, 2, 0), encode_record(message))

    assert found_at(query, pull, pull) is not None
    assert asked == [0, 1, 1]


@pytest.mark.parametrize("missing", ["the first", "the last", "both"])
def test_a_skipped_record_may_be_the_decision(missing: str) -> None:
    query = str(uuid.uuid4())

    def pull(request: Command, channel: Channel) -> Command:
        numbers = {"the first": [1], "the last": [0], "both": []}[missing]
        records = [
            encode_record(StoredMessage("L", b"a part", {"TAGS": "Pother"}, queue_offset=number))
            for number in numbers
        ]
        code = ResponseCode.SUCCESS if records else ResponseCode.PULL_RETRY_IMMEDIATELY
        return request.reply(code, offsets(2, 2, 0), b"".join(records))

    with pytest.raises(CommitFailed, match=r"a record from offset \d on is damaged"):
        found_at(query, pull, pull)


@pytest.mark.parametrize(("batch", "there"), [(2, 1), (3, 0)])
def test_skipped_records_before_an_earlier_batch_or_after_the_decision_do_not_matter(
    batch: int, there: int
) -> None:
    query = str(uuid.uuid4())
    record = {"query": query, "batch": batch, "token": "t", "ends": {}, "parts": []}

    def pull(request: Command, channel: Channel) -> Command:
        tags = {"TAGS": f"D{query}"}
        message = StoredMessage("L", orjson.dumps(record), tags, queue_offset=there)
        return request.reply(0, offsets(2, 2, 0), encode_record(message))

    assert (found_at(query, pull, pull) is not None) == (batch == 3)


def test_expired_records_that_their_queue_still_lists_are_not_missing() -> None:
    """A Java broker deletes the log's file before the queue
    (DefaultMessageStore.cleanFilesPeriodically).
    """
    asked: list[int] = []

    def pull(request: Command, channel: Channel) -> Command:
        return request.reply(ResponseCode.PULL_RETRY_IMMEDIATELY, offsets(2, 2, 0))

    def least() -> int:
        asked.append(1)
        return 2 if len(asked) > 3 else 0

    assert found_at(str(uuid.uuid4()), pull, pull, least) is None


def test_records_that_expire_during_the_search_are_not_missing() -> None:
    query = str(uuid.uuid4())

    def pull(request: Command, channel: Channel) -> Command:
        if request.fields["queueOffset"] == "0":
            moved = {**offsets(1, 2, 0), "minOffset": "1"}
            return request.reply(ResponseCode.PULL_OFFSET_MOVED, moved)
        message = StoredMessage("L", b"a part", {"TAGS": "Pother"}, queue_offset=1)
        return request.reply(0, {**offsets(2, 2, 0), "minOffset": "1"}, encode_record(message))

    assert found_at(query, pull, pull) is None


def test_a_damaged_decision_does_not_count_as_missing() -> None:
    query = str(uuid.uuid4())
    body = orjson.dumps({"query": query, "batch": 3, "token": "t", "ends": {}, "parts": []})

    def pull(request: Command, channel: Channel) -> Command:
        message = StoredMessage(request.fields["topic"], body, {"TAGS": f"D{query}"})
        damaged = encode_record(message).replace(b"token", b"taken")
        return request.reply(0, offsets(2, 2, 0), damaged)

    with pytest.raises(CommitFailed, match=r"a record from offset 0 on is damaged"):
        found_at(query, pull, pull)
