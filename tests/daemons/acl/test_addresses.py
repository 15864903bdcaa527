import pytest

from mq.daemons.acl.addresses import matcher, parts_of
from mq.daemons.acl.errors import AclError


@pytest.mark.parametrize(
    ("pattern", "address"),
    [
        ("*", "10.0.0.1"),
        ("*.*.*.*", "10.0.0.1"),
        ("*:*:*:*:*:*:*:*", "2001:db8::1"),
        ("192.168.0.1", "192.168.0.1"),
        ("192.168.0.*", "192.168.0.255"),
        ("192.168.*.*", "192.168.7.8"),
        ("192.168.1-100.*", "192.168.100.3"),
        ("192.168.0.1-5", "192.168.0.5"),
        ("192.168.0.{1,7}", "192.168.0.7"),
        ("10.0.0.1,10.0.0.9", "10.0.0.9"),
        ("10.0.0.1, 2001:db8::1", "2001:0db8:0:0:0:0:0:1"),
        ("2001:db8::1", "2001:DB8:0:0::1"),
        ("2001:db8::{1,ff}", "2001:db8::ff"),
        ("1050::0005:0600:300c:*", "1050::5:600:300c:1"),
        ("1050::5:600:3000-300f:*", "1050::5:600:300c:7"),
        ("1050::5:600:300c:1-200", "1050::5:600:300c:200"),
        ("127.0.0.1", "::ffff:127.0.0.1"),
    ],
)
def test_an_address_of_the_pattern_matches(pattern: str, address: str) -> None:
    assert matcher(pattern)(parts_of(address))


@pytest.mark.parametrize(
    ("pattern", "address"),
    [
        ("", "10.0.0.1"),
        ("   ", "10.0.0.1"),
        (None, "10.0.0.1"),
        ("192.168.0.1", "192.168.0.10"),
        ("192.168.0.*", "192.168.1.1"),
        ("192.168.1-100.*", "192.168.101.1"),
        ("192.168.*.5", "192.168.7.6"),
        ("192.168.0.{1,7}", "192.168.0.2"),
        ("10.0.0.1,10.0.0.9", "10.0.0.2"),
        ("2001:db8::1", "2001:db8::2"),
        ("1050::5:600:300c:*", "1050::5:600:300d:1"),
        ("1050::5:600:300c:1-200", "1050::5:600:300c:201"),
        ("10.0.0.*", "2001:db8::1"),
        ("10.0.0.*", "not an address"),
        ("10.0.0.1", "not an address"),
    ],
)
def test_any_other_address_does_not_match(pattern: str | None, address: str) -> None:
    assert not matcher(pattern)(parts_of(address))


@pytest.mark.parametrize(
    "pattern",
    [
        "localhost",
        "10.0.0",
        "10.0.0.256",
        "10.0.0.1-256",
        "10.0.0.9-1",
        "10.0.*",
        "*.0.0.1",
        "10.0.0.-5",
        "10.0.0{1,2}",
        "10.0.0.{}",
        "10.0.0.{1,300}",
        "2001:db8::*:1",
        "2001:*:db8::1",
        "2001:db8:*",
        "2001::db8::*",
        "2001:db8::fffff-1:*",
    ],
)
def test_an_invalid_pattern_is_refused_by_name(pattern: str) -> None:
    with pytest.raises(AclError, match="Netaddress examine"):
        matcher(pattern)
