"""Consumer groups: created, listed and deleted."""

from pathlib import Path

from mq.protocol.bodies import (
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from tests import answered
from tests.daemons.broker.harness import Harness, serve
from tests.daemons.peer import Peer


def refusal(reply: Command) -> tuple[int, str | None]:
    return reply.code, reply.remark


@answered.by_broker(
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
)
def test_a_group_is_created_listed_and_deleted(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        told = SubscriptionGroupConfig(group_name="g", retry_max_times=3)
        reply = await peer.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, told.encode())
        assert reply.code == ResponseCode.SUCCESS
        reply = await peer.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        table = SubscriptionGroupWrapper.decode(reply.body).subscription_group_table
        assert table["g"].retry_max_times == 3
        reply = await peer.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "g"})
        assert SubscriptionGroupConfig.decode(reply.body) == told
        broker.stores.offsets.commit("g", "T", 0, 1)
        await peer.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g"})
        assert "g" not in broker.stores.groups.table
        assert broker.stores.offsets.query("g", "T", 0) == 1
        fields = {"groupName": "g", "removeOffset": "true"}
        await peer.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, fields)
        assert broker.stores.offsets.query("g", "T", 0) == -1

    serve(tmp_path, script)


def test_a_request_for_a_new_group_creates_it_where_clients_may_create_groups(
    tmp_path: Path,
) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        code = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG
        groups = broker.stores.groups.table
        reply = await peer.ask(code, {"group": "g"})
        assert SubscriptionGroupConfig.decode(reply.body) == groups["g"]
        assert refusal(await peer.ask(code, {"group": "../g"}))[0] == 26
        operation = broker.settings.operation
        broker.settings.operation = operation.replace(max_auto_created_groups=len(groups))
        assert (await peer.ask(code, {"group": "h"})).code == ResponseCode.SYSTEM_BUSY
        broker.settings.operation = operation
        config = broker.settings.broker
        broker.settings.broker = config.replace(auto_create_subscription_group=False)
        reply = await peer.ask(code, {"group": "h"})
        assert refusal(reply) == (26, "subscription group[h] not exist")
        assert "h" not in groups

    serve(tmp_path, script)


def test_attributes_of_a_group_are_checked_and_kept(tmp_path: Path) -> None:
    async def change(peer: Peer, attributes: dict[str, str] | None) -> int:
        body = SubscriptionGroupConfig(group_name="g", attributes=attributes).encode()
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        return (await peer.ask(code, None, body)).code

    async def script(broker: Harness, peer: Peer) -> None:
        table = broker.stores.groups
        assert await change(peer, {"+priority.factor": "50"}) == ResponseCode.SUCCESS
        assert await change(peer, None) == ResponseCode.SUCCESS
        assert table.table["g"].attributes == {"priority.factor": "50"}
        assert await change(peer, {"+priority.factor": "500"}) == ResponseCode.SYSTEM_ERROR
        assert await change(peer, {"+no.such": "1"}) == ResponseCode.SYSTEM_ERROR
        assert await change(peer, {"-priority.factor": ""}) == ResponseCode.SUCCESS
        assert table.table["g"].attributes is None

    serve(tmp_path, script)


def test_a_group_with_a_bad_name_is_refused(tmp_path: Path) -> None:
    async def script(broker: Harness, peer: Peer) -> None:
        for name in ("../x", "", "g" * 256):
            body = SubscriptionGroupConfig(group_name=name).encode()
            reply = await peer.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)
            assert reply.code == ResponseCode.SYSTEM_ERROR
            assert name not in broker.stores.groups.table

    serve(tmp_path, script)
