"""Consumers that filter by properties, with a whole broker: pulls, waits, checks, the table."""

import asyncio
import json
from pathlib import Path

import pytest

from mq.daemons.broker.app import Broker
from mq.protocol.bodies import (
    CheckClientRequestBody,
    QueryConsumeQueueResponseBody,
    SubscriptionData,
)
from mq.protocol.codes import RequestCode, ResponseCode
from tests import answered
from tests.daemons.broker.filters.pulls import (
    GROUP,
    SUSPEND,
    TOPIC,
    beat,
    fill,
    pull,
    pull_fields,
    serve,
    subscription,
)
from tests.daemons.broker.harness import send
from tests.daemons.peer import Peer


async def held(broker: Broker) -> None:
    """Wait until a pull is suspended."""
    async with asyncio.timeout(30):
        while not broker.stores.messages.queue(TOPIC, 0).waiting:  # noqa: ASYNC110  (it has no event)
            await asyncio.sleep(0)


def sql(expression: str) -> dict[str, str]:
    return {"subscription": expression, "expressionType": "SQL92"}


def test_a_pull_gets_the_messages_that_match_its_expression(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        await fill(peer)
        reply, bodies = await pull(peer, **sql("a > 2 AND a <= 5 AND b = 'x'"))
        assert (reply.code, bodies) == (ResponseCode.SUCCESS, ["3", "4", "5"])
        assert reply.fields["nextBeginOffset"] == "10"
        reply, bodies = await pull(peer, 4, maxMsgNums="2", **sql("a BETWEEN 3 AND 8"))
        assert (bodies, reply.fields["nextBeginOffset"]) == (["4", "5"], "6")
        reply, bodies = await pull(peer, **sql("a > 'y' OR a = 'none'".replace("'y'", "100")))
        assert (reply.code, bodies) == (ResponseCode.PULL_RETRY_IMMEDIATELY, [])
        assert reply.fields["nextBeginOffset"] == "10"

    serve(tmp_path, script)


def test_a_pull_reads_800_entries_at_most(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        await fill(peer, 810)
        reply, _ = await pull(peer, **sql("a = '805'"))
        assert (reply.code, reply.fields["nextBeginOffset"]) == (20, "800")
        reply, bodies = await pull(peer, 800, **sql("a = '805'"))
        assert (bodies, reply.fields["nextBeginOffset"]) == (["805"], "810")

    serve(tmp_path, script)


def test_messages_of_damaged_entries_are_filtered_like_others(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        await fill(peer, 6)
        queue = broker.stores.messages.queue(TOPIC, 0)
        wrong = queue.entries(0, 1)
        for index, damage in ((1, bytes(20)), (2, bytes(20)), (3, wrong), (4, wrong)):
            queue.mend(index, damage)
        assert (await pull(peer, **sql("a <> '2' AND a <> '4'")))[1] == ["0", "1", "3", "5"]

    serve(tmp_path, script)


def test_a_message_from_an_ipv6_address_is_filtered_like_others(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        await fill(peer, 1)
        queue = broker.stores.messages.queue(TOPIC, 0)
        properties = b"a\x017"
        broker.stores.messages.appender.append(
            queue,
            b"body",
            len(properties).to_bytes(2, "big") + properties,
            flag=0,
            sys_flag=0,
            born_timestamp=0,
            born_host=bytes(15) + b"\x01" + bytes(4),
        )
        broker.stores.messages.appender.commit()
        assert (await pull(peer, **sql("a = '7'")))[1] == ["body"]

    serve(tmp_path, script)


def test_a_waiting_pull_wakes_for_the_first_message_that_matches(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        await fill(peer, 2)
        async with Peer(broker.port) as other:
            waiting = asyncio.create_task(pull(other, 2, flags=str(SUSPEND), **sql("a = '4'")))
            await held(broker)
            await fill(peer, 3, start=2)
            reply, bodies = await waiting
            assert (reply.code, bodies) == (ResponseCode.SUCCESS, ["4"])

    serve(tmp_path, script)


def test_the_filter_of_the_heartbeat_applies_to_a_pull_without_one(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        await fill(peer)
        await beat(peer, subscription("a >= 8"))
        assert (await pull(peer))[1] == ["8", "9"]
        await beat(peer, subscription("a >= 9", version=2))
        assert (await pull(peer))[1] == ["9"]
        await beat(peer, subscription("a >= 1", version=1))  # an older one changes nothing
        assert (await pull(peer))[1] == ["9"]

    serve(tmp_path, script)


def test_a_pull_whose_filter_is_not_known_is_refused(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        await fill(peer, 1)
        await beat(peer, subscription("a >"))
        reply, _ = await pull(peer)
        assert reply.code == ResponseCode.FILTER_DATA_NOT_EXIST
        assert reply.remark == (
            "The broker's consumer filter data is not exist!Your expression may be wrong!"
        )
        await beat(peer, subscription("a > 1", version=2))
        reply, _ = await pull(peer, subVersion="3")
        assert reply.code == ResponseCode.SUBSCRIPTION_NOT_LATEST
        broker.stores.filters.table[TOPIC][GROUP].client_version = 1
        reply, _ = await pull(peer, subVersion="2")
        assert reply.code == ResponseCode.FILTER_DATA_NOT_LATEST
        assert reply.remark == "the consumer's consumer filter data not latest"

    serve(tmp_path, script)


@pytest.mark.parametrize("expression", ["a >", "", "a = 1 LIMIT 5", "x" * 20_000])
def test_a_bad_expression_is_refused_with_the_position(tmp_path: Path, expression: str) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        await fill(peer, 1)
        reply, _ = await pull(peer, **sql(expression))
        body = CheckClientRequestBody(
            client_id="client", group=GROUP, subscription_data=subscription(expression)
        )
        checked = await peer.ask(RequestCode.CHECK_CLIENT_CONFIG, body=body.encode())
        for answer in (reply, checked):
            assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
            assert answer.remark is not None and "\n" not in answer.remark
            assert answer.remark.startswith("parse the consumer's subscription failed: ")
            assert "column" in answer.remark or "16384 are allowed" in answer.remark

    serve(tmp_path, script)


@pytest.mark.parametrize(("enabled", "kind"), [("false", "SQL92"), ("true", "SQL2003")])
def test_a_type_that_is_not_supported_is_refused(tmp_path: Path, enabled: str, kind: str) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        await fill(peer, 1)
        await beat(peer, subscription("a = 1", kind))
        body = CheckClientRequestBody(subscription_data=subscription("a = 1", kind))
        checked = await peer.ask(RequestCode.CHECK_CLIENT_CONFIG, body=body.encode())
        own, _ = await pull(peer, subscription="a = 1", expressionType=kind)
        answers = [checked, own]
        if kind == "SQL92":  # unsupported types are not added to the table
            answers.append((await pull(peer))[0])
        for answer in answers:
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert answer.remark == (
                f"The broker does not support consumer to filter message by {kind}"
            )

    serve(tmp_path, script, enablePropertyFilter=enabled)


@answered.by_broker(RequestCode.CHECK_CLIENT_CONFIG)
def test_a_supported_expression_passes_the_check(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        for kind, text in (("SQL92", "a > 1"), ("TAG", "x || y"), ("", "*")):
            body = CheckClientRequestBody(subscription_data=subscription(text, kind))
            reply = await peer.ask(RequestCode.CHECK_CLIENT_CONFIG, body=body.encode())
            assert reply.code == ResponseCode.SUCCESS

    serve(tmp_path, script)


def test_a_message_sent_back_is_filtered_like_its_topic_if_enabled(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        await fill(peer, 1)
        retry = f"%RETRY%{GROUP}"
        await beat(
            peer,
            subscription("a = '1'"),
            SubscriptionData(topic=retry, sub_string="*", sub_version=1),
        )
        for n in range(3):
            await send(peer, retry, b"%d" % n, properties=f"RETRY_TOPIC\x01{TOPIC}\x02a\x01{n}")
        await send(peer, retry, b"other", properties="RETRY_TOPIC\x01Unfiltered\x02a\x015")
        assert (await pull(peer, topic=retry))[1] == ["1", "other"]
        assert (await pull(peer, topic=retry, subscription="*"))[1] == ["1", "other"]

    serve(tmp_path, script, filterSupportRetry="true")


def test_the_filter_of_a_group_that_leaves_is_dead_until_it_returns(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        await beat(peer, subscription("a > 1"))
        data = broker.stores.filters.get(TOPIC, GROUP)
        assert data is not None and not data.is_dead
        fields = {"clientID": "client", "consumerGroup": GROUP}
        await peer.ask(RequestCode.UNREGISTER_CLIENT, fields)
        assert data.is_dead
        await beat(peer, subscription("a > 1"))
        assert not data.is_dead
        await beat(peer)  # the group exists but does not subscribe any more
        assert data.is_dead

    serve(tmp_path, script)


def test_the_table_is_on_disk_after_a_stop_and_read_by_the_next_start(tmp_path: Path) -> None:
    async def first(broker: Broker, peer: Peer) -> None:
        await fill(peer)
        await beat(peer, subscription("a = '7'"))

    async def second(broker: Broker, peer: Peer) -> None:
        data = broker.stores.filters.get(TOPIC, GROUP)
        assert data is not None and data.is_dead
        await beat(peer, subscription("a = '7'"))
        assert not data.is_dead
        assert (await pull(peer))[1] == ["7"]

    serve(tmp_path, first)
    saved = json.loads((tmp_path / "store/config/consumerFilter.json").read_bytes())
    entry = saved["filterDataByTopic"][TOPIC]["groupFilterData"][GROUP]
    assert entry["expression"] == "a = '7'"
    assert entry["bloomFilterData"]["bitNum"] == 112
    serve(tmp_path, second)


def test_an_administrator_sees_the_filter_of_a_group(tmp_path: Path) -> None:
    async def script(broker: Broker, peer: Peer) -> None:
        await fill(peer, 1)
        await beat(peer, subscription("a > 1"))
        fields = {"topic": TOPIC, "queueId": "0", "index": "0", "count": "1"}
        reply = await peer.ask(RequestCode.QUERY_CONSUME_QUEUE, {**fields, "consumerGroup": GROUP})
        shown = json.loads(QueryConsumeQueueResponseBody.decode(reply.body).filter_data or "")
        assert (shown["expression"], shown["dead"]) == ("a > 1", False)

    serve(tmp_path, script)


def test_a_pull_examines_fewer_messages_if_each_costs_more(tmp_path: Path) -> None:
    number, count = "0." + "1" * 30_000, 20

    async def script(broker: Broker, peer: Peer) -> None:
        for _ in range(count):
            await send(peer, TOPIC, b"body", properties=f"a\x01{number}")
        for comparisons, most in ((1700, 5), (1, count)):
            offset = pulls = 0
            text = " OR ".join(["a>1.5"] * comparisons)
            while offset < count:
                fields = pull_fields(offset, subscription=text, expressionType="SQL92")
                reply = await peer.ask(RequestCode.PULL_MESSAGE, fields)
                assert reply.code == ResponseCode.PULL_RETRY_IMMEDIATELY, reply
                passed = int(reply.fields["nextBeginOffset"]) - offset
                assert 0 < passed <= most
                offset += passed
                pulls += 1
            assert pulls >= count // most

    serve(tmp_path, script)
