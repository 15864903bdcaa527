"""Who clients and brokers are."""

from pathlib import Path
from typing import Any

import pytest

from mq.client.machine import clock
from mq.daemons.config import ConfigError
from mq.protocol.tube import messages as m
from mq.protocol.tube.codes import Method
from mq.protocol.tube.signature import sign
from tests.daemons.tube.loops import in_loop
from tests.daemons.tube.master.masters import Peer, running, settings


def certificate(name: str, password: str, *, late_ms: int = 0) -> m.MasterCertificateInfo:
    now = clock.milliseconds() - late_ms
    info = m.AuthenticateInfo(
        userName=name, timestamp=now, nonce=7, othParams="", signature=sign(name, password, now, 7)
    )
    return m.MasterCertificateInfo(authInfo=info)


async def close(peer: Peer, **fields: Any) -> Any:
    request = m.CloseRequestC2M(clientId="c", groupName="group", **fields)
    return await peer.ask(Method.CONSUMER_CLOSE_C2M, request)


@in_loop
async def test_signatures_are_checked_where_there_are_accounts(tmp_path: Path) -> None:
    accounts = tmp_path / "accounts"
    accounts.write_text("ann=secret\n")
    asks = {"startConsumeAuthenticate": "true", "accountsFile": accounts}
    async with running(tmp_path, **asks) as cluster:
        for wrong in (
            {},
            {"authInfo": m.MasterCertificateInfo()},
            {"authInfo": certificate("", "secret")},
            {"authInfo": certificate("ann", "other")},
            {"authInfo": certificate("bob", "")},
            {"authInfo": certificate("ann", "secret", late_ms=21_000)},
            {"authInfo": certificate("ann", "secret", late_ms=-21_000)},
        ):
            answer = await close(cluster.peer, **wrong)
            assert (answer.success, answer.errCode) == (False, 415)
        assert (await close(cluster.peer, authInfo=certificate("ann", "secret"))).success
        # Producers are not asked here.
        producer = m.CloseRequestP2M(clientId="p")
        assert (await cluster.peer.ask(Method.PRODUCER_CLOSE_P2M, producer)).success
        accounts.write_text("ann=other\n")
        cluster.master.reload()
        assert (await close(cluster.peer, authInfo=certificate("ann", "secret"))).errCode == 415
        assert (await close(cluster.peer, authInfo=certificate("ann", "other"))).success


@in_loop
async def test_without_accounts_a_name_and_the_time_are_all_that_is_asked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, startConsumeAuthenticate="true") as cluster:
        assert "any name and signature will do" in caplog.text
        assert (await close(cluster.peer)).errCode == 415
        assert (await close(cluster.peer, authInfo=certificate("ann", "whatever"))).success


@in_loop
async def test_brokers_show_the_name_and_password_that_are_set(tmp_path: Path) -> None:
    account = {"needBrokerVisitAuth": "true", "visitName": "broker", "visitPassword": "pw"}
    async with running(tmp_path, **account) as cluster:
        for wrong in (
            m.MasterCertificateInfo(),
            certificate("x", "pw"),
            certificate("broker", "x"),
        ):
            request = m.CloseRequestB2M(brokerId="1", authInfo=wrong)
            assert (await cluster.peer.ask(Method.BROKER_CLOSE_B2M, request)).errCode == 415
        request = m.CloseRequestB2M(brokerId="1", authInfo=certificate("broker", "pw"))
        assert (await cluster.peer.ask(Method.BROKER_CLOSE_B2M, request)).errCode == 411


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"hostName": "10.0.0.1", "confModAuthToken": "abc"}, "anybody knows"),
        ({"hostName": "10.0.0.1", "confModAuthToken": "ASDFGHJKL"}, "anybody knows"),
        ({"needBrokerVisitAuth": "true"}, "visitName"),
        ({"masterGroup": "a/b"}, "masterGroup"),
        ({"consumerBalancePeriodMs": "0"}, "consumerBalancePeriodMs"),
        ({"visitTokenValidPeriodMs": "1"}, "visitTokenValidPeriodMs"),
        ({"hostName": "a b"}, "hostName"),
    ],
)
def test_settings_that_cannot_work_are_refused(
    tmp_path: Path, change: dict[str, object], text: str
) -> None:
    with pytest.raises(ConfigError, match=text):
        settings(tmp_path, **change)


def test_who_may_do_what_off_loopback_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings(tmp_path, hostName="10.0.0.1", confModAuthToken="x")
    assert "does not authenticate producers, consumers and brokers" in caplog.text


def test_tokens_are_renewed_and_brokers_know_them_first() -> None:
    from mq.daemons.tube.master.tokens import VisitTokens

    tokens = VisitTokens(300_000)
    assert tokens.period == 240
    first = tokens.for_clients
    assert tokens.for_brokers == f"{first},{first}"
    tokens.renew()
    assert tokens.for_clients == first
    assert tokens.for_brokers == f"{first},{tokens.fresh}"
    tokens.renew()
    assert tokens.for_clients != first
