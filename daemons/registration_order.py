"""Fields of REGISTER_BROKER by which mq's name servers order the registrations of mq's brokers.

Java's name servers ignore them. They identify the start of the broker that sent the registration,
the number of registrations before it, whether its topics are all topics of the broker, and, if they
are only changes, the data version that they are based on.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from mq.protocol.bodies import DataVersion
from mq.protocol.errors import RemoteProtocolError

START = "registrationStart"
NUMBER = "registrationNumber"
KIND = "registrationKind"
BASE = "registrationBase"


class Kind(StrEnum):
    """The content of a registration."""

    WHOLE = "whole"
    """All topics of the broker."""
    FIRST_PART = "firstPart"
    """The first part of the broker's topics; increments follow."""
    INCREMENT = "increment"
    """The changes since the state with the data version in BASE."""


@dataclass(frozen=True)
class RegistrationOrder:
    """The place of a registration in the order of its broker's registrations."""

    start: str
    number: int
    kind: Kind
    base: DataVersion | None = None

    def encode(self) -> dict[str, str]:
        """The fields of the header."""
        fields = {START: self.start, NUMBER: str(self.number), KIND: self.kind.value}
        if self.base is not None:
            fields[BASE] = self.base.encode().decode()
        return fields

    @classmethod
    def decode(cls, fields: Mapping[str, str]) -> Self | None:
        """Decode the fields of a header; None if they are missing, as for a Java broker.

        Raises:
            RemoteProtocolError: they are malformed.
        """
        if START not in fields:
            return None
        try:
            base = fields.get(BASE)
            return cls(
                fields[START],
                int(fields[NUMBER]),
                Kind(fields[KIND]),
                None if base is None else DataVersion.decode(base.encode()),
            )
        except (KeyError, ValueError) as error:
            raise RemoteProtocolError(f"registration fields are malformed: {error}") from None
