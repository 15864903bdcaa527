"""The limit for attempts of an address with secrets."""

import pytest

from mq.client.machine import clock
from mq.daemons.tube import failed_logins
from mq.daemons.tube.failed_logins import MOST_FAILURES, PERIOD, FailedLogins, host_of


def fail(logins: FailedLogins, host: str, times: int = MOST_FAILURES) -> None:
    for _ in range(times):
        logins.failed(host)


def test_an_address_is_blocked_until_its_period_ends_and_others_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = clock.monotonic()
    monkeypatch.setattr(clock, "monotonic", lambda: now)
    limits = FailedLogins()
    fail(limits, "10.0.0.1", MOST_FAILURES - 1)
    assert not limits.is_blocked("10.0.0.1")
    limits.failed("10.0.0.1")
    assert limits.is_blocked("10.0.0.1")
    assert limits.is_blocked("::ffff:10.0.0.1")
    assert not limits.is_blocked("10.0.0.2")
    now += PERIOD
    assert not limits.is_blocked("10.0.0.1")


def test_the_addresses_of_one_network_of_ipv6_count_together() -> None:
    limits = FailedLogins()
    for number in range(MOST_FAILURES):
        limits.failed(f"2001:db8::{number:x}")
    assert limits.is_blocked("2001:db8::ffff%eth0")
    assert not limits.is_blocked("2001:db8:0:1::1")


def test_the_table_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failed_logins, "_MOST_ADDRESSES", 2)
    limits = FailedLogins()
    for host in ("a", "b", "c"):
        fail(limits, host)
    assert [limits.is_blocked(host) for host in ("a", "b", "c")] == [False, True, True]


@pytest.mark.parametrize(("peer", "host"), [("1.2.3.4:5", "1.2.3.4"), ("[::1]:5", "::1"),
                                            ("::1:5", "::1"), ("", "")])  # fmt: skip
def test_a_peer_names_its_host(peer: str, host: str) -> None:
    assert host_of(peer) == host
