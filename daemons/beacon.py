"""The datagram with which a broker shows a name server that it is alive.

It is sent to the UDP port with the number of the name server's TCP port and is one JSON object:

  {"cluster": …, "broker": …, "id": 0, "address": "10.0.0.1:10911", "start": "16 hex digits"}

`start` is generated at every start of a broker. When the broker registers over TCP, it sends it to
the name server in the field START_FIELD of REGISTER_BROKER, which Java ignores, and the interval
between two beacons in ms in INTERVAL_FIELD: a name server waits for at least a few of them.
"""

from dataclasses import dataclass
from typing import Self

import orjson

START_FIELD = "livenessBeaconStart"
INTERVAL_FIELD = "livenessBeaconIntervalMillis"
MISSED_BEACONS = 3  # so many missing in a row are more than one lost datagram
MOST_BYTES = 1024  # limit of a datagram; names have at most 255 bytes


@dataclass(frozen=True)
class Beacon:
    """The content of the datagram."""

    cluster: str
    broker: str
    broker_id: int
    address: str
    start: str

    def encode(self) -> bytes:
        return orjson.dumps(
            {
                "cluster": self.cluster,
                "broker": self.broker,
                "id": self.broker_id,
                "address": self.address,
                "start": self.start,
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode a datagram; later releases may add fields.

        Raises:
            ValueError: it is not a beacon.
        """
        if len(data) > MOST_BYTES:
            raise ValueError(f"a datagram of {len(data)} bytes")
        fields = orjson.loads(data)
        if not isinstance(fields, dict):
            raise ValueError("not an object")
        cluster, broker, address, start = (
            fields.get(name) for name in ("cluster", "broker", "address", "start")
        )
        number = fields.get("id")
        if not (
            isinstance(cluster, str)
            and isinstance(broker, str)
            and isinstance(address, str)
            and isinstance(start, str)
            and isinstance(number, int)
        ):
            raise ValueError("a field is missing or of another type")
        return cls(cluster, broker, number, address, start)
