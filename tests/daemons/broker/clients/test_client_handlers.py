"""Members of groups and producers: registration, notifications, refusals."""

from pathlib import Path

import pytest

from mq.protocol.bodies import (
    CheckClientRequestBody,
    ConsumerConnection,
    ConsumeType,
    GetConsumerListByGroupResponseBody,
    ProducerConnection,
    ProducerTableInfo,
    SubscriptionData,
    SubscriptionGroupConfig,
)
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from tests import answered
from tests.daemons.broker.groups.members import beat, heartbeat
from tests.daemons.broker.harness import Harness, serve
from tests.daemons.peer import Peer


async def consumer_ids(peer: Peer, group: str = "g") -> list[str]:
    reply = await peer.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
    if reply.code != ResponseCode.SUCCESS:
        assert (reply.code, reply.remark) == (1, f"no consumer for this group, {group}")
        return []
    return GetConsumerListByGroupResponseBody.decode(reply.body).consumer_id_list


def refusal(reply: Command) -> tuple[int, str | None]:
    return reply.code, reply.remark


@answered.by_broker(
    RequestCode.HEART_BEAT,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP,
    RequestCode.GET_CONSUMER_CONNECTION_LIST,
    RequestCode.GET_PRODUCER_CONNECTION_LIST,
    RequestCode.GET_ALL_PRODUCER_INFO,
)
def test_a_heartbeat_registers_a_client_and_creates_the_retry_topic(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        await beat(peer, "c1", "T", "%RETRY%g")
        assert await consumer_ids(peer) == ["c1"]
        assert broker.stores.topics.table["%RETRY%g"].write_queue_nums == 1
        assert "g" in broker.stores.groups.table
        reply = await peer.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "g"})
        shown = ConsumerConnection.decode(reply.body)
        assert [(c.client_id, c.client_addr) for c in shown.connection_set] == [
            ("c1", peer.address)
        ]
        assert set(shown.subscription_table) == {"T", "%RETRY%g"}
        assert shown.consume_type is ConsumeType.CONSUME_PASSIVELY
        reply = await peer.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "P"})
        assert ProducerConnection.decode(reply.body).connection_set[0].client_id == "c1"
        reply = await peer.ask(RequestCode.GET_ALL_PRODUCER_INFO)
        assert ProducerTableInfo.decode(reply.body).data["P"][0].remote_ip == f"/{peer.address}"

    serve(tmp_path, script)


@answered.by_broker(RequestCode.UNREGISTER_CLIENT)
def test_members_are_notified_when_others_join_and_leave(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        await beat(peer, "c1", "T")
        first = await peer.pushed_command()
        assert (first.code, first.is_one_way) == (RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, True)
        assert first.fields == {"consumerGroup": "g"}
        async with Peer(broker.port) as other:
            await beat(other, "c2", "T")
            assert (await peer.pushed_command()).code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
            assert await consumer_ids(peer) == ["c1", "c2"]
        assert (await peer.pushed_command()).code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
        assert await consumer_ids(peer) == ["c1"]
        async with Peer(broker.port) as other:
            await beat(other, "c3", "T")
            await peer.pushed_command()
            fields = {"clientID": "c3", "producerGroup": "P", "consumerGroup": "g"}
            reply = await other.ask(RequestCode.UNREGISTER_CLIENT, fields)
            assert reply.code == ResponseCode.SUCCESS
            await peer.pushed_command()
            assert await consumer_ids(peer) == ["c1"]

    serve(tmp_path, script)


def test_no_notification_without_a_change_or_with_notifications_disabled(
    tmp_path: Path,
) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        group = SubscriptionGroupConfig(
            group_name="quiet", notify_consumer_ids_changed_enable=False
        )
        await broker.stores.groups.update(group)
        await beat(peer, "c1", "T", group="quiet")
        await beat(peer, "c1", "T")
        await peer.pushed_command()
        await beat(peer, "c1", "T")
        await beat(peer, "c1", "T", version=2)
        await beat(peer, "c1", "T", "U", version=3)
        await beat(peer, "c1", "T", "U", version=3)
        assert await consumer_ids(peer) == ["c1"]
        assert [c.fields["consumerGroup"] for c in peer.pushed] == ["g"]

    serve(tmp_path, script)


def test_a_broker_with_notifications_disabled_sends_none(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        await beat(peer, "c1", "T")
        assert await consumer_ids(peer) == ["c1"]
        assert not peer.pushed
        update = b"notifyConsumerIdsChangedEnable=true\n"
        await peer.ask(RequestCode.UPDATE_BROKER_CONFIG, None, update)
        await beat(peer, "c1", "T", "U", version=2)
        assert (await peer.pushed_command()).code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED

    serve(tmp_path, script, notifyConsumerIdsChangedEnable="false")


def test_silent_clients_expire(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        async with Peer(broker.port) as other:
            await beat(other, "c2", "T")
            await beat(peer, "c1", "T")
            for registered in broker.clients.consumers.groups["g"].clients.values():
                if registered.client_id == "c2":
                    registered.last_seen -= 121
            broker.clients.consumers.expire(120)
            broker.clients.producers.expire(120)
            assert [await consumer_ids(peer), len(broker.clients.producers.groups["P"])] == [
                ["c1"],
                1,
            ]
            await other.closed_by_daemon()

    serve(tmp_path, script)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{", "HeartbeatData"),
        (b"{}", "clientID is missing"),
        (heartbeat("c1", "../x", "T"), "The specified group contains illegal characters"),
        (heartbeat("c1", "", "T"), "The specified group is blank."),
    ],
)
def test_a_bad_heartbeat_is_refused_and_registers_no_client(
    tmp_path: Path, body: bytes, reason: str
) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        reply = await peer.ask(RequestCode.HEART_BEAT, None, body)
        assert reply.code == ResponseCode.SYSTEM_ERROR and reason in (reply.remark or "")
        assert (broker.clients.consumers.groups, broker.clients.producers.groups) == ({}, {})

    serve(tmp_path, script)


@pytest.mark.parametrize(
    ("kind", "code"), [("TAG", ResponseCode.SUCCESS), ("SQL92", ResponseCode.SYSTEM_ERROR)]
)
def test_a_subscription_is_checked(tmp_path: Path, kind: str, code: int) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        body = CheckClientRequestBody(
            client_id="c", group="g", subscription_data=SubscriptionData(expression_type=kind)
        )
        assert (await peer.ask(RequestCode.CHECK_CLIENT_CONFIG, None, body.encode())).code == code

    serve(tmp_path, script)


def test_a_missing_client_gets_the_remark_of_java(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        reply = await peer.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "x"})
        assert refusal(reply) == (206, "the consumer group[x] not online")
        reply = await peer.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "x"})
        assert refusal(reply) == (1, "the producer group[x] not exist")

    serve(tmp_path, script)


def shared_id_warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for line in caplog.messages if "same client id" in line]


def test_two_members_with_one_client_id_are_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        async with Peer(broker.port) as other:
            for _ in range(3):
                await beat(peer, "c1", "T")
                await beat(other, "c1", "T")
            [warning] = shared_id_warnings(caplog)
            assert peer.address in warning and other.address in warning
            assert warning.startswith("group g:") and "client id c1" in warning

    serve(tmp_path, script)


def test_a_client_with_an_old_and_a_new_connection_is_one_member(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        await beat(peer, "c1", "T")
        await beat(peer, "c1", "T")
        async with Peer(broker.port) as again:
            for _ in range(3):
                await beat(again, "c1", "T")
        assert not shared_id_warnings(caplog)

    serve(tmp_path, script)


def test_former_client_ids_of_a_connection_are_not_kept(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        for number in range(50):
            await beat(peer, f"c{number}", "T")
        group = broker.clients.consumers.groups["g"]
        assert set(group.last_by_id) == {"c49"}

    serve(tmp_path, script)
