"""The born host of a message: the peer of its connection, or the address that a snode reports.

A snode writes the address of its client into the field `o`. The field is trusted only on a
connection that uses the dialect of snodes; on other connections a client could forge it.
"""

from collections.abc import Mapping

from mq.daemons.channel import Channel
from mq.protocol.codes import Dialect
from mq.protocol.headers.send import Letter
from mq.protocol.host import pack_address, pack_host

_ORDINARY = Dialect.ORDINARY
_LAST_PORT = 0xFFFF


def born_host(fields: Mapping[str, str], channel: Channel) -> bytes:
    """Address and port as a record holds them."""
    if channel.dialect is not _ORDINARY and (named := _named(fields)) is not None:
        return pack_address(*named)
    return channel.born_host


def born_address(fields: Mapping[str, str], channel: Channel) -> tuple[str, int]:
    """Address and port."""
    if channel.dialect is not _ORDINARY and (named := _named(fields)) is not None:
        return named
    return channel.remote_address


def _named(fields: Mapping[str, str]) -> tuple[str, int] | None:
    """The address that the snode reports; None if it is missing or malformed."""
    host, _, port_text = fields.get(Letter.BORN_HOST, "").rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    try:
        pack_host(host)
        port = int(port_text)
    except ValueError:
        return None
    return (host, port) if 0 <= port <= _LAST_PORT else None
