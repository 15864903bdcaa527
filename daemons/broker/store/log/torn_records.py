"""Properties that make a record look torn, as if a crash had kept its end from the disk."""

from mq.daemons.broker.store import layout
from mq.daemons.broker.store.errors import StoreRefused
from mq.protocol.codes import ResponseCode
from mq.protocol.properties import MAX_LENGTH, PROPERTY_SEPARATOR

_SEPARATOR = PROPERTY_SEPARATOR.encode()


def looks_torn() -> StoreRefused:
    return StoreRefused(
        ResponseCode.MESSAGE_ILLEGAL,
        f"properties with {layout.SECTOR} zeros in a row: after a power failure the message would "
        f"look torn and the log would be truncated there; put such data into the body",
    )


def ended(properties_field: bytes) -> bytes:
    """Return the properties with a separator at their end: a record that ended in zeros would look
    like one whose end a crash kept from the disk. Raises StoreRefused if there is no room for
    it.
    """
    length = len(properties_field) - 2
    if not length:
        return properties_field
    if length >= MAX_LENGTH:
        raise StoreRefused(
            ResponseCode.MESSAGE_ILLEGAL,
            f"properties of {length} bytes that end in a zero: after a crash the message could "
            f"look torn and the log could be truncated there; leave a byte of room, or put such "
            f"data into the body",
        )
    return layout.SHORT.pack(length + 1) + properties_field[2:] + _SEPARATOR
