"""Errors on the wire.

ProtocolError
├── LocalProtocolError    a bug on this side: a command that cannot be written
└── RemoteProtocolError   a broken or hostile peer: bytes that cannot be read
    └── NoMemoryForBody   the body may be intact, but memory is lacking
"""


class ProtocolError(Exception):
    """Bytes or values do not form a command."""


class LocalProtocolError(ProtocolError):
    """This side tried to send something that the wire format cannot represent."""


class RemoteProtocolError(ProtocolError):
    """The peer sent something that is not a command, or not the declared one."""


class NoMemoryForBody(RemoteProtocolError):
    """There is not enough memory to decompress a body, which may be intact."""
