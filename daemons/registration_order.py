"""Fields of REGISTER_BROKER by which our name servers tell registrations of our brokers apart.

Java's name servers ignore them. They say which start of the broker sent it and how many it had sent
before, whether the topics in it are all that the broker has, and, where they are only what changed,
since which data version.
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
    """What the topics of a registration are."""

    WHOLE = "whole"
    """All that the broker has."""
    FIRST_PART = "firstPart"
    """Of those that the broker has, the first; increments follow."""
    INCREMENT = "increment"
    """What differs from the state with the data version in BASE."""


@dataclass(frozen=True)
class RegistrationOrder:
    """Where a registration stands among those of its broker."""

    start: str
    number: int
    kind: Kind
    base: DataVersion | None = None

    def encode(self) -> dict[str, str]:
        """As fields of the header."""
        fields = {START: self.start, NUMBER: str(self.number), KIND: self.kind.value}
        if self.base is not None:
            fields[BASE] = self.base.encode().decode()
        return fields

    @classmethod
    def decode(cls, fields: Mapping[str, str]) -> Self | None:
        """Read the fields of a header; None where there are none, as of a Java broker.

        Raises:
            RemoteProtocolError: they are not as written above.
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
