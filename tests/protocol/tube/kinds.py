"""Every kind of message of TubeMQ."""

import re
from pathlib import Path

from google.protobuf.message import Message

from mq.protocol.tube import messages

FOLDER = Path(messages.__file__).parent
NAMES = sorted(
    name
    for source in FOLDER.glob("*.proto")
    for name in re.findall(r"^message (\w+)", source.read_text(), re.MULTILINE)
)
KINDS: list[type[Message]] = [getattr(messages, name) for name in NAMES]
