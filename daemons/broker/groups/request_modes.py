"""Request modes: whether groups read topics by pull or pop, kept in config/messageRequestMode.json
(5.x).
"""

import asyncio
from pathlib import Path

from mq.daemons.state_file import read_body, write_atomically
from mq.protocol import fastjson
from mq.protocol.bodies.pop import (
    MessageRequestModeSerializeWrapper,
    SetMessageRequestModeRequestBody,
)


class RequestModes:
    """The modes by topic and group."""

    def __init__(self, path: Path) -> None:
        self._path = path
        schema = MessageRequestModeSerializeWrapper
        self.table = read_body(path, schema) or schema()

    def get(self, topic: str, group: str) -> SetMessageRequestModeRequestBody | None:
        return self.table.message_request_mode_map.get(topic, {}).get(group)

    async def take_copy(self, table: MessageRequestModeSerializeWrapper) -> None:
        """Save the modes copied from the master of this slave. Raises OSError; nothing has changed
        then.
        """
        if table != self.table:
            text = fastjson.dumps_pretty(table.to_plain())
            await asyncio.to_thread(write_atomically, self._path, text)
            self.table = table

    def set(self, mode: SetMessageRequestModeRequestBody) -> None:
        """Set a mode.

        Raises:
            OSError: it could not be saved; nothing has changed.
        """
        old = self.table.message_request_mode_map
        topic, group = mode.topic or "", mode.consumer_group or ""
        changed = {**old, topic: {**old.get(topic, {}), group: mode}}
        table = MessageRequestModeSerializeWrapper(message_request_mode_map=changed)
        write_atomically(self._path, fastjson.dumps_pretty(table.to_plain()))
        self.table = table
