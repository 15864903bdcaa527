"""Clients as brokers tell of them: producers and consumers alike."""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mq.protocol.bodies import Connection, ProducerInfo


class Client(NamedTuple):
    """A connected client; `language` is None where its number is not known."""

    client_id: str
    address: str
    language: str | None
    version: str


def client_of(connection: "Connection | ProducerInfo") -> Client:
    """What a broker says of a connection, as people read it."""
    from mq.protocol.bodies import Connection
    from mq.protocol.versions import version_name

    if isinstance(connection, Connection):
        address = connection.client_addr
    else:
        address = connection.remote_ip.lstrip("/")  # Java's way to write a socket's address
    language = None if connection.language is None else connection.language.name
    return Client(connection.client_id, address, language, version_name(connection.version))
