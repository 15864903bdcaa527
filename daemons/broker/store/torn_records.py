"""Properties that make a record look torn, as if a crash had kept its end from the disk."""

from mq.daemons.broker.store import layout
from mq.daemons.broker.store.errors import StoreRefused
from mq.protocol.codes import ResponseCode
from mq.protocol.properties import MAX_LENGTH, PROPERTY_SEPARATOR

_SEPARATOR = PROPERTY_SEPARATOR.encode()


def looks_torn() -> StoreRefused:
    return StoreRefused(
        ResponseCode.MESSAGE_ILLEGAL,
        f"properties with {layout.SECTOR} zeros in a row: a start behind a power cut would take "
        f"the message for torn, and cut the log there; put such data into the body",
    )


def ended(properties_field: bytes) -> bytes:
    """The same with a separator behind it: a record that ended in zeros could not be told from one
    whose end a crash has kept from the disk. Raises StoreRefused where there is no room for it."""
    length = len(properties_field) - 2
    if not length:
        return properties_field
    if length >= MAX_LENGTH:
        raise StoreRefused(
            ResponseCode.MESSAGE_ILLEGAL,
            f"properties of {length} bytes that end in a zero: a start behind a crash could take "
            f"the message for torn, and cut the log there; leave a byte of room, or put such data "
            f"into the body",
        )
    return layout.SHORT.pack(length + 1) + properties_field[2:] + _SEPARATOR
