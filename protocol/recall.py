"""The handle by which a delayed message can be recalled (5.3).

Base64 with the URL alphabet of `v1 TOPIC BROKER TIME UNIQUE-ID`, parts separated by one space
(org.apache.rocketmq.common.producer.RecallMessageHandle).
"""

import base64
import binascii
from typing import NamedTuple

_VERSION = "v1"


class RecallHandle(NamedTuple):
    """The message, its broker and its delivery time."""

    topic: str
    broker_name: str
    due: int  # ms since 1970, rounded as the broker's timer does
    message_id: str  # its unique id

    def encode(self) -> str:
        """Return the handle as text."""
        parts = (_VERSION, self.topic, self.broker_name, str(self.due), self.message_id)
        return base64.urlsafe_b64encode(" ".join(parts).encode()).decode()

    @classmethod
    def decode(cls, text: str) -> "RecallHandle":
        """Parse a handle. Raises ValueError if it is malformed."""
        try:
            raw = base64.b64decode(text.encode(), altchars=b"-_", validate=True).decode()
        except (UnicodeError, binascii.Error):
            raise ValueError("recall handle is invalid") from None
        version, *parts = raw.split(" ")
        if version != _VERSION or len(parts) < 4:
            raise ValueError("recall handle is invalid")
        topic, broker_name, due, message_id = parts[:4]
        number = due.isascii() and due.isdigit() and len(due) < 19
        return cls(topic, broker_name, int(due) if number else -1, message_id)
