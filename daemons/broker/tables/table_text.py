"""The text of a file that holds a table and its data version, as fastjson writes it.

Such a file is written often, each time for a few members that changed, so the text of a member is
kept for as long as the member is the same object: whoever changes one puts another in its place.
"""

from collections.abc import Mapping

import orjson

from mq.client.machine import clock
from mq.protocol import fastjson
from mq.protocol.bodies import DataVersion
from mq.protocol.bodies.schema import Body


def next_version(version: DataVersion) -> DataVersion:
    """The data version of the table after one more change."""
    return DataVersion(timestamp=clock.milliseconds(), counter=version.counter + 1)


class TableText:
    """`field` is the name of the table in the file."""

    def __init__(self, field: str) -> None:
        self._field = field.encode()
        self._texts: dict[str, tuple[Body, bytes]] = {}

    def encode(self, table: Mapping[str, Body], version: DataVersion) -> bytes:
        """The whole file."""
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
