"""Plans and results of workers, both encoded as JSON."""

from dataclasses import asdict, dataclass, field
from typing import Any, Self

import orjson

PRODUCE = "produce"
CONSUME = "consume"
# The length of the stamp at the start of a body: when its send was due, in nanoseconds of the
# monotonic clock, which is the same in all processes of a machine.
STAMP_DIGITS = 19


@dataclass(frozen=True)
class Plan:
    """The load of one worker.

    Attributes:
        queues: (address of the broker, queue id, first offset to read, or -1 for the end).
        rate: messages per second, on a schedule; 0 sends as fast as replies arrive.
        warm: seconds of warm-up before the measured `seconds`.
        window: sends in flight per connection, or messages per pull.
        stamped: bodies contain when they were due, and consumers measure from that time.
        to_the_end: a consumer ends when it has reached the ends of its queues.
    """

    role: str
    topic: str
    queues: list[tuple[str, int, int]]
    connections: int = 1
    window: int = 128
    size: int = 1024
    rate: float = 0.0
    seconds: float = 10.0
    warm: float = 1.0
    stamped: bool = False
    to_the_end: bool = False
    group: str = "mq-bench"
    properties: dict[str, str] = field(default_factory=dict)
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    security_token: str | None = field(default=None, repr=False)
    tls: dict[str, str] | None = field(default=None, repr=False)  # of tls.properties

    def encode(self) -> bytes:
        return orjson.dumps(asdict(self))

    @classmethod
    def decode(cls, raw: bytes) -> Self:
        """Raises ValueError, TypeError for invalid data."""
        fields: dict[str, Any] = orjson.loads(raw)
        fields["queues"] = [tuple(queue) for queue in fields["queues"]]
        return cls(**fields)


@dataclass
class LoadResult:
    """The counts of a worker in the measured seconds.

    Attributes:
        latencies: the number of requests by latency in microseconds.
        errors: the number of failed replies by code; -1 stands for lost connections.
        seconds: from the start of the measured time to the last reply that counts.
    """

    messages: int = 0
    size: int = 0  # bytes
    seconds: float = 0.0
    latencies: dict[int, int] = field(default_factory=dict)
    errors: dict[int, int] = field(default_factory=dict)
    remark: str = ""  # of the first error

    def encode(self) -> bytes:
        fields = asdict(self)
        fields["latencies"] = list(self.latencies.items())
        fields["errors"] = list(self.errors.items())
        return orjson.dumps(fields)

    @classmethod
    def decode(cls, raw: bytes) -> Self:
        fields: dict[str, Any] = orjson.loads(raw)
        fields["latencies"] = dict(fields["latencies"])
        fields["errors"] = dict(fields["errors"])
        return cls(**fields)

    def add(self, other: "LoadResult") -> None:
        """Add the results of a worker that ran concurrently."""
        self.messages += other.messages
        self.size += other.size
        self.seconds = max(self.seconds, other.seconds)
        for key, count in other.latencies.items():
            self.latencies[key] = self.latencies.get(key, 0) + count
        for code, count in other.errors.items():
            self.errors[code] = self.errors.get(code, 0) + count
        self.remark = self.remark or other.remark
