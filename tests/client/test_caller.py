"""Addresses of name servers, as users give them."""

import pytest

from mq.client.caller import parse_address, parse_name_servers
from mq.client.errors import ClientError


def test_name_servers_are_parted_by_semicolons_or_commas() -> None:
    assert parse_name_servers("a:1; b:2,c:3;") == ("a:1", "b:2", "c:3")
    assert parse_address("[::1]:9876") == ("::1", 9876)


@pytest.mark.parametrize("text", ["", ";", "host", "host:", "host:0", "host:65536", ":1", "a:1;b"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ClientError):
        parse_name_servers(text)
