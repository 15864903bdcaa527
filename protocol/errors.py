"""Errors on the wire.

ProtocolError
├── LocalProtocolError    a bug on this side: a command that cannot be written
└── RemoteProtocolError   a broken or hostile peer: bytes that cannot be read
    └── NoMemoryForBody   or only not here, not now
"""


class ProtocolError(Exception):
    """The bytes or values do not make a command."""


class LocalProtocolError(ProtocolError):
    """This side asked for something that the wire cannot carry."""


class RemoteProtocolError(ProtocolError):
    """The peer sent something that is not a command, or not the one it claims to be."""


class NoMemoryForBody(RemoteProtocolError):
    """There is not the memory to decompress a body, which may be whole."""
