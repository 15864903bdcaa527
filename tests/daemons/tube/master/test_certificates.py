"""Authentication of clients and brokers."""

from pathlib import Path
from typing import Any

import pytest

from mq.client.machine import clock
from mq.daemons.config import ConfigError
from mq.daemons.tube.failed_logins import MOST_FAILURES, PERIOD
from mq.daemons.tube.master.config import MasterSettings
from mq.daemons.tube.master.tokens import VisitTokens
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
        # Producers are not authenticated here.
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
        ({"hostName": "10.0.0.1", "confModAuthToken": "abc"}, "publicly known"),
        ({"hostName": "10.0.0.1", "confModAuthToken": "ASDFGHJKL"}, "publicly known"),
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


@in_loop
async def test_a_token_of_the_answer_replaces_the_signature_until_the_account_changes(
    tmp_path: Path,
) -> None:
    """Java's clients sign their registration only."""
    accounts = tmp_path / "accounts"
    accounts.write_text("ann=secret\nbob+b=secret\n")
    asks = {"startProduceAuthenticate": "true", "accountsFile": accounts}
    async with running(tmp_path, **asks) as cluster:
        signed = certificate("bob+b", "secret")
        token = (await register_producer(cluster.peer, signed)).authorizedInfo.authAuthorizedToken
        assert "secret" not in token
        shown = m.MasterCertificateInfo(authorizedToken=token)
        answer = await beat_producer(cluster.peer, "p", shown)
        assert answer.success, answer.errMsg
        assert answer.authorizedInfo.authAuthorizedToken
        other = await beat_producer(cluster.peer, "q", shown)
        assert (other.success, other.errCode) == (False, 411)
        for wrong in ("", "a b", token.replace("bob", "ann"), token[:-1] + "!", token + "é"):
            shown_wrong = m.MasterCertificateInfo(authorizedToken=wrong)
            assert (await beat_producer(cluster.peer, "p", shown_wrong)).errCode == 411
        assert (await register_producer(cluster.peer, shown)).errCode == 415
        accounts.write_text("bob+b=changed\n")
        cluster.master.reload()
        assert (await beat_producer(cluster.peer, "p", shown)).errCode == 411


@in_loop
async def test_an_address_with_many_wrong_signatures_has_to_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accounts = tmp_path / "accounts"
    accounts.write_text("ann=secret\n")
    asks = {"startProduceAuthenticate": "true", "accountsFile": accounts}
    now = clock.monotonic()
    monkeypatch.setattr(clock, "monotonic", lambda: now)
    async with running(tmp_path, **asks) as cluster:
        for _ in range(MOST_FAILURES):
            answer = await register_producer(cluster.peer, certificate("ann", "wrong"))
            assert answer.errCode == 415
        right = certificate("ann", "secret")
        blocked = await register_producer(cluster.peer, right)
        assert (blocked.errCode, "too many wrong" in blocked.errMsg) == (415, True)
        now += PERIOD
        assert (await register_producer(cluster.peer, right)).success


async def register_producer(peer: Peer, info: m.MasterCertificateInfo) -> Any:
    request = m.RegisterRequestP2M(
        clientId="p", topicList=["demo"], brokerCheckSum=-1, hostName="127.0.0.1", authInfo=info
    )
    return await peer.ask(Method.PRODUCER_REGISTER_P2M, request)


async def beat_producer(peer: Peer, client_id: str, info: m.MasterCertificateInfo) -> Any:
    request = m.HeartRequestP2M(
        clientId=client_id, topicList=["demo"], brokerCheckSum=-1, hostName="h", authInfo=info
    )
    return await peer.ask(Method.PRODUCER_HEARTBEAT_P2M, request)


def test_tokens_are_random_by_kind_and_brokers_know_the_next_one() -> None:
    tokens = VisitTokens(300_000)
    assert tokens.period == 240
    every = set(tokens.of(produces=True)) | set(tokens.of(produces=False))
    for _ in range(100):
        for produces in (True, False):
            *_, shown, upcoming = tokens.of(produces=produces)
            assert tokens.for_clients(produces=produces) == shown
            tokens.renew()
            assert tokens.for_clients(produces=produces) == upcoming
            assert shown in tokens.of(produces=produces)  # of clients that do not know it yet
            every.add(upcoming)
    assert all(0 < one < 1 << 63 for one in every)
    assert len(every) > 200
    produce, consume = tokens.of(produces=True), tokens.of(produces=False)
    listed = [int(one) for one in tokens.for_brokers.split(",")]
    assert (listed[::2], listed[1::2]) == (produce, consume)
    assert not set(produce) & set(consume)


def test_producers_cannot_be_authorized() -> None:
    with pytest.raises(ConfigError, match="there is no list of producers"):
        MasterSettings.load(None, {"startProduceAuthorize": "true"})


def test_checks_that_any_broker_could_defeat_are_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings(tmp_path, startVisitTokenCheck="true")
    assert "gets the visit tokens" in caplog.text
