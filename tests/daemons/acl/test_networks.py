"""Lists of addresses and networks."""

import pytest

from mq.daemons.acl.networks import is_in, parse_networks
from mq.daemons.config import ConfigError


@pytest.mark.parametrize(
    ("text", "host", "inside"),
    [
        ("10.0.0.5", "10.0.0.5", True),
        ("10.0.0.5", "10.0.0.6", False),
        ("10.0.1.0/24; 10.0.0.5 ;", "10.0.1.255", True),
        ("10.0.1.0/24", "10.0.2.0", False),
        ("10.0.1.0/24", "::ffff:10.0.1.7", True),
        ("2001:db8::/32", "2001:db8::1%eth0", True),
        ("2001:db8::/32", "10.0.1.7", False),
        ("0.0.0.0/0", "", False),
        ("", "10.0.0.5", False),
    ],
)
def test_an_address_is_in_a_list_or_not(text: str, host: str, inside: bool) -> None:
    assert is_in(host, parse_networks(text)) is inside


@pytest.mark.parametrize("text", ["10.0.0.0/33", "10.0.0.1/24", "broker-a", "10.0.0.1;*"])
def test_an_invalid_list_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError, match="neither an address nor a network"):
        parse_networks(text)
