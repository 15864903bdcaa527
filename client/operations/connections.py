"""Connected clients as brokers report them, producers as well as consumers."""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mq.protocol.bodies import Connection, ProducerInfo


class Client(NamedTuple):
    """A connected client; `language` is None if its number is unknown."""

    client_id: str
    address: str
    language: str | None
    version: str


def client_of(connection: "Connection | ProducerInfo") -> Client:
    """Convert a broker's description of a connection to readable values."""
    from mq.protocol.bodies import Connection
    from mq.protocol.versions import version_name

    if isinstance(connection, Connection):
        address = connection.client_addr
    else:
        address = connection.remote_ip.lstrip("/")  # Java's format of a socket's address
    language = None if connection.language is None else connection.language.name
    return Client(connection.client_id, address, language, version_name(connection.version))
