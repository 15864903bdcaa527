"""A broker serves only clients that its master accepts: both are real here."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from mq.client.machine import clock
from mq.daemons.tube.broker import access
from mq.daemons.tube.broker.app import Broker
from mq.daemons.tube.broker.config import BrokerSettings
from mq.protocol.tube import messages as m
from mq.protocol.tube.codes import Method
from mq.protocol.tube.signature import sign
from tests.daemons.tube.broker.harness import Client, connected, overrides
from tests.daemons.tube.loops import in_loop
from tests.daemons.tube.master.masters import Masters, running


@pytest.fixture(autouse=True)
def _quick_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "REFUSAL_SECONDS", 0.0)


@asynccontextmanager
async def cluster(tmp: Path, **asks: Any) -> AsyncIterator[tuple[Masters, Broker, Client]]:
    """A master, and a broker 1 with the topic demo; a client without tokens."""
    async with (
        running(tmp / "master", **asks) as masters,
        Broker(_settings(tmp, masters)) as broker,
        connected(broker) as client,
    ):
        await _admit(masters, broker)
        yield masters, broker, client


def _settings(tmp: Path, masters: Masters) -> BrokerSettings:
    at = f"127.0.0.1:{masters.master.port}"
    beats = 3_600_000  # they come when a test says so
    return BrokerSettings.load(
        None, overrides(tmp, masterAddressList=at, heartbeatPeriodMs=beats, rpcReadTimeoutMs=2000)
    )


async def _admit(masters: Masters, broker: Broker) -> None:
    place = {"brokerId": 1, "brokerIp": "127.0.0.1", "brokerPort": broker.port}
    await masters.changed("admin_add_broker_configure", **place)
    await masters.changed("admin_online_broker_configure", brokerId=1)
    await masters.changed(
        "admin_add_new_topic_record", topicName="demo", brokerId=1, numPartitions=2
    )
    await beat(broker, 8)


async def beat(broker: Broker, times: int = 1) -> None:
    assert broker.link is not None
    for _ in range(times):
        await broker.link.beat()


def account(tmp: Path) -> Path:
    path = tmp / "accounts"
    path.write_text("ann=secret\n")
    return path


def signed(name: str = "ann", password: str = "secret") -> m.MasterCertificateInfo:
    now = clock.milliseconds()
    info = m.AuthenticateInfo(
        userName=name, timestamp=now, nonce=7, othParams="", signature=sign(name, password, now, 7)
    )
    return m.MasterCertificateInfo(authInfo=info)


async def produce_token(masters: Masters, **fields: Any) -> int:
    request = m.RegisterRequestP2M(
        clientId="p", topicList=["demo"], brokerCheckSum=-1, hostName="127.0.0.1", **fields
    )
    answer = await masters.peer.ask(Method.PRODUCER_REGISTER_P2M, request)
    assert answer.success, answer.errMsg
    return cast(int, answer.authorizedInfo.visitAuthorizedToken)


async def consume_token(masters: Masters, **fields: Any) -> int:
    answer = await masters.peer.consume("c", **fields)
    assert answer.success, answer.errMsg
    return cast(int, answer.authorizedInfo.visitAuthorizedToken)


def shows(token: int, text: str = "") -> dict[str, Any]:
    return {"authInfo": {"visitAuthorizedToken": token, "authAuthorizedToken": text}}


@in_loop
async def test_a_producer_that_the_master_refuses_cannot_send(tmp_path: Path) -> None:
    asks = {"startProduceAuthenticate": "true", "accountsFile": account(tmp_path)}
    async with cluster(tmp_path, **asks) as (masters, _, client):
        # No consumer has to authenticate: its token is not one for sends.
        other = await consume_token(masters)
        for wrong in ({}, shows(other, "x"), shows(clock.milliseconds(), "ann 1 2 x"), shows(-2)):
            assert (await client.send(b"x", **wrong)).errCode == 415
        token = await produce_token(masters, authInfo=signed())
        assert (await client.send(b"x", **shows(token))).success
        assert (await client.register(**shows(other))).success


@in_loop
async def test_a_consumer_that_the_master_refuses_cannot_register_or_beat(tmp_path: Path) -> None:
    asks = {"startConsumeAuthenticate": "true", "accountsFile": account(tmp_path)}
    async with cluster(tmp_path, **asks) as (masters, _, client):
        other = await produce_token(masters)
        for wrong in (shows(other, "ann 1 2 x"), shows(-2, "x"), {}):
            assert (await client.register(**wrong)).errCode == 415
            assert (await client.heartbeat(**wrong)).errCode == 415
        token = await consume_token(masters, authInfo=signed())
        assert (await client.register(**shows(token))).success
        assert (await client.heartbeat(**shows(token))).success


@in_loop
async def test_a_token_is_checked_at_once_and_while_no_master_answers(tmp_path: Path) -> None:
    async with cluster(tmp_path, startVisitTokenCheck="true") as (masters, broker, client):
        token = await produce_token(masters)
        assert (await client.send(b"x", **shows(token))).success
        assert (await client.send(b"x", **shows(token ^ 1))).errCode == 415
        await masters.master.listener.close()
        await beat(broker)
        assert broker.link is not None and not broker.link.is_answered
        assert (await client.send(b"x", **shows(token))).success
        assert (await client.send(b"x", **shows(token ^ 1))).errCode == 415


@in_loop
async def test_tokens_overlap_when_they_are_renewed_and_expire_after_that(tmp_path: Path) -> None:
    async with cluster(tmp_path, startVisitTokenCheck="true") as (masters, broker, client):
        token = await produce_token(masters)
        for _ in range(2):
            masters.core.tokens.renew()
            later = await produce_token(masters)  # the broker has not got the renewed one yet
            assert (await client.send(b"x", **shows(later))).success
            await beat(broker)
            assert (await client.send(b"x", **shows(token))).success
        for _ in range(6):
            masters.core.tokens.renew()
            await beat(broker)
        assert (await client.send(b"x", **shows(token))).errCode == 415
        assert (await client.send(b"x", **shows(await produce_token(masters)))).success


@in_loop
async def test_a_restarted_broker_serves_nobody_until_it_knows_the_tokens(tmp_path: Path) -> None:
    async with cluster(tmp_path, startVisitTokenCheck="true") as (masters, broker, client):
        token = await produce_token(masters)
        assert (await client.send(b"x", **shows(token))).success
    unreachable = BrokerSettings.load(None, overrides(tmp_path, masterAddressList="127.0.0.1:1"))
    async with Broker(unreachable) as broker, connected(broker) as client:
        assert (await client.send(b"x", **shows(token))).errCode == 503
        assert (await client.register(**shows(token))).errCode == 503


@in_loop
async def test_groups_that_may_not_consume_are_refused_by_the_broker(tmp_path: Path) -> None:
    async with cluster(tmp_path, startConsumeAuthorize="true") as (masters, broker, client):
        topic = {"topicName": "demo"}
        assert (await client.register()).success
        await masters.changed("admin_set_topic_authorize_control", **topic, isEnable="true")
        await masters.changed(
            "admin_add_authorized_consumergroup_info", **topic, groupName="friends"
        )
        await masters.changed("admin_add_authorized_consumergroup_info", **topic, groupName="some")
        limits = {"condStatus": 2, "filterConds": ",a,b,"}
        await masters.changed(
            "admin_add_group_filtercond_info", **topic, groupName="some", **limits
        )
        await beat(broker)
        assert (await client.get()).errCode == 411  # its registration has expired
        assert (await client.register()).errCode == 450
        assert (await client.register(groupName="friends")).success
        for items, code in (([], 455), (["a", "c"], 455), (["b"], 200)):
            answer = await client.register(groupName="some", partitionId=1, filterCondStr=items)
            assert answer.errCode == code
        await masters.changed("admin_set_topic_authorize_control", **topic, isEnable="false")
        await masters.changed("admin_add_black_consumergroup_info", **topic, groupName="friends")
        await beat(broker)
        assert (await client.register(groupName="friends")).errCode == 450
        assert (await client.register()).success


@in_loop
async def test_rights_are_sent_again_only_when_they_have_changed(tmp_path: Path) -> None:
    async with cluster(tmp_path, startConsumeAuthorize="true") as (masters, broker, client):
        known = broker.serving.access.rights_id
        assert known
        assert masters.core.grants.for_broker(1, known).rights is None
        await masters.changed(
            "admin_add_black_consumergroup_info", topicName="demo", groupName="group"
        )
        assert masters.core.grants.for_broker(1, known).rights is not None
        await beat(broker)
        assert broker.serving.access.rights_id != known
        assert (await client.register()).errCode == 450


@in_loop
async def test_another_host_cannot_read_with_the_id_of_a_consumer(tmp_path: Path) -> None:
    async with cluster(tmp_path, startVisitTokenCheck="true") as (masters, broker, client):
        token = await consume_token(masters)
        assert (await client.register(**shows(token))).success
        for consumer in broker.serving.consumers:
            consumer.address = "10.9.9.9:1"  # as if it had come from there
        assert (await client.get()).errCode == 411
        assert (await client.commit()).errCode == 411
        assert (await client.register(**shows(token))).success
        assert (await client.get()).errCode == 404


@in_loop
async def test_a_wrong_token_is_answered_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "REFUSAL_SECONDS", 3600.0)
    async with cluster(tmp_path, startVisitTokenCheck="true") as (masters, _, client):
        token = await produce_token(masters)
        refused = [
            asyncio.ensure_future(client.send(b"x", **shows(1))),
            asyncio.ensure_future(client.register(**shows(1))),
            asyncio.ensure_future(client.heartbeat(**shows(1))),
        ]
        assert (await client.send(b"x", **shows(token))).success  # it came after them
        assert not any(one.done() for one in refused)
        for one in refused:
            one.cancel()
