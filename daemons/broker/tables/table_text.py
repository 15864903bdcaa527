"""The text of a file with a table and its data version, in fastjson's format.

Such a file is written often, each time for a few changed members. So the text of a member is cached
while the member is the same object: a change must replace the object.
"""

from collections.abc import Mapping

import orjson

from mq.client.machine import clock
from mq.protocol import fastjson
from mq.protocol.bodies import DataVersion
from mq.protocol.bodies.schema import Body


def next_version(version: DataVersion) -> DataVersion:
    """The next data version of the table."""
    return DataVersion(timestamp=clock.milliseconds(), counter=version.counter + 1)


class TableText:
    """Encodes the file; `field` is the name of the table in it."""

    def __init__(self, field: str) -> None:
        self._field = field.encode()
        self._texts: dict[str, tuple[Body, bytes]] = {}

    def encode(self, table: Mapping[str, Body], version: DataVersion) -> bytes:
        """The content of the whole file."""
        texts: dict[str, tuple[Body, bytes]] = {}
        for name, member in table.items():
            known = self._texts.get(name)
            if known is None or known[0] is not member:
                text = orjson.dumps(name) + b":" + fastjson.dumps_pretty(member.to_plain(), depth=2)
                known = (member, text)
            texts[name] = known
        self._texts = texts
        return b'{\n\t"dataVersion":%b,\n\t"%b":{\n\t\t%b\n\t}\n}' % (
            fastjson.dumps_pretty(version.to_plain(), depth=1),
            self._field,
            b",\n\t\t".join(text for _, text in texts.values()),
        )
