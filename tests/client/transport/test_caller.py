"""Addresses of name servers, as users give them."""

import pytest

from mq.client.errors import ClientError
from mq.client.transport.caller import parse_address, parse_name_servers


def test_name_servers_are_separated_by_semicolons_or_commas() -> None:
    assert parse_name_servers("a:1; b:2,c:3;") == ("a:1", "b:2", "c:3")
    assert parse_address("[::1]:9876") == ("::1", 9876)


@pytest.mark.parametrize(
    "text",
    [
        *("", ";", "host", "host:", "host:0", "host:65536", ":1", "a:1;b"),
        *(
            "a..b:1",
            ".a:1",
            "a" * 64 + ":1",
            "ä" * 64 + ":1",
            "a\0b:1",
        ),
    ],
)
def test_an_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(ClientError):
        parse_name_servers(text)


@pytest.mark.parametrize("host", ["a.b.", "a" * 63, "1.2.3.4", "größe.example", "fe80::1%eth0"])
def test_a_resolvable_host_is_accepted(host: str) -> None:
    assert parse_address(f"{host}:1") == (host, 1)
