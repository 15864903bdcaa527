"""The datagram with which a broker shows a name server that it lives.

It goes to the UDP port with the number of the name server's TCP port and is one JSON object:

    {"cluster": …, "broker": …, "id": 0, "address": "10.0.0.1:10911", "start": "16 hex digits"}

`start` is made anew at every start of a broker and told to the name server when the broker
registers, over TCP, in the field START_FIELD of REGISTER_BROKER, which Java ignores. So is the
pause between two beacons, in ms, in INTERVAL_FIELD: a name server waits for a few of them at least.
"""

from dataclasses import dataclass
from typing import Self

import orjson

START_FIELD = "livenessBeaconStart"
INTERVAL_FIELD = "livenessBeaconIntervalMillis"
MISSED_BEACONS = 3  # so many in a row are more than one lost datagram
MOST_BYTES = 1024  # of a datagram; names are at most 255 bytes


@dataclass(frozen=True)
class Beacon:
    """What the datagram says."""

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
        """Read a datagram, of which there may be more fields in later releases.

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
