"""Filter classes: code of ours that chooses messages at the filter servers beside a broker.

A consumer that subscribes to a topic by a class sends its source to every filter server in the
topic's route, after its heartbeats and on every new connection, and pulls from one of them by
chance. Sources: MQClientInstance.uploadFilterClassSource, PullAPIWrapper.computPullFromWhichFilter
(4.2.0).
"""

import ast
import asyncio
import inspect
import logging
import textwrap
from collections.abc import Mapping
from zlib import crc32

from mq.client.errors import ClientError, MQError
from mq.client.session import Session
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.headers.filtersrv import RegisterMessageFilterClassRequestHeader

log = logging.getLogger(__name__)

UPLOAD_TIMEOUT = 5.0  # MQClientAPIImpl.registerMessageFilterClass
LOOK_SECONDS = 1.0  # between two looks whether there are filter servers that have no class yet


class ClassFilter(str):
    """A subscription by a class with `match(message)` or `match(message, context)`.

        class Large:
            def match(self, message):
                return len(message.body) > 1000

        Consumer(namesrv, "billing", {"Orders": ClassFilter(Large)})

    The text is the name of the class. Its source is what is between `class` and its end: what it
    needs it imports in there, and filter servers have no more than a part of Python's library for
    it. A class of which only the name is given is one that the filter servers have as a file.
    """

    __slots__ = ("source",)

    source: str

    def __new__(cls, what: type | str, source: str | None = None) -> "ClassFilter":
        """`what` is a class, or the name of the one in `source`.

        Raises ClientError for a class whose source cannot be found, or has no match, and for a
        source that is not Python: with line and reason.
        """
        name = what if isinstance(what, str) else what.__name__
        if source is None and not isinstance(what, str):
            source = _source_of(what)
        self = super().__new__(cls, name)
        self.source = source or ""
        if self.source:
            _check(name, self.source)
        return self


def _source_of(kind: type) -> str:
    if not callable(getattr(kind, "match", None)):
        raise ClientError(f"class {kind.__name__} has no match(message)")
    try:
        return textwrap.dedent(inspect.getsource(kind))
    except (OSError, TypeError) as error:
        raise ClientError(
            f"the source of class {kind.__name__} cannot be found ({error}): give it as a text"
        ) from None


def _check(name: str, source: str) -> None:
    """Raises ClientError for what no filter server could load; nothing of it is run."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        reason = getattr(error, "msg", str(error))
        raise ClientError(f"class {name}, line {line}: {reason}") from None
    last = name.rpartition(".")[2]
    if not any(isinstance(node, ast.ClassDef) and node.name == last for node in tree.body):
        raise ClientError(f"there is no class {last} in the source of {name}")


class FilterUploads:
    """Sends the classes of a group to the filter servers of their topics."""

    def __init__(
        self, session: Session, group: str, filters: Mapping[str, ClassFilter], interval: float
    ) -> None:
        """`filters` by topic; each goes to a filter server again after `interval` seconds."""
        self._session = session
        self._group = group
        self._filters = filters
        self._interval = interval
        # Over which connection a filter server has taken the class of a topic, and when.
        self._taken: dict[tuple[str, str], tuple[object, float]] = {}
        self._told: dict[tuple[str, str], str] = {}  # what was last said to be wrong

    async def upload(self) -> None:
        """Send what is due; what goes wrong is logged, and tried again."""
        due = []
        there = set()
        for topic in self._filters:
            route = self._session.known_route(topic)
            servers = {} if route is None else route.filter_server_table
            addresses = {address for several in servers.values() for address in several}
            if route is not None and not addresses:
                self._tell(topic, "", f"topic {topic} has no filter server")
            there |= {(topic, address) for address in addresses or ("",)}
            due += [(topic, address) for address in addresses if self._is_due(topic, address)]
        # Each that is started again is at another port.
        self._taken = {place: taken for place, taken in self._taken.items() if place in there}
        self._told = {place: told for place, told in self._told.items() if place in there}
        await asyncio.gather(*(self._upload(topic, address) for topic, address in due))

    async def run(self) -> None:
        """Send each class again and again, and at once to who is new, until cancelled."""
        while True:
            await asyncio.sleep(min(LOOK_SECONDS, self._interval))
            try:
                await self.upload()
            except Exception:
                log.exception("filter classes of group %s are not uploaded", self._group)

    def _is_due(self, topic: str, address: str) -> bool:
        taken = self._taken.get((topic, address))
        if taken is None:
            return True
        connection, when = taken
        if self._session.connection(address) is not connection:
            return True
        return asyncio.get_running_loop().time() - when >= self._interval

    async def _upload(self, topic: str, address: str) -> None:
        chosen = self._filters[topic]
        body = chosen.source.encode()
        header = RegisterMessageFilterClassRequestHeader(
            consumer_group=self._group,
            topic=topic,
            class_name=str(chosen),
            class_crc=crc32(body) & 0x7FFFFFFF,
        )
        command = Command(RequestCode.REGISTER_MESSAGE_FILTER_CLASS, header.encode(), body)
        now = asyncio.get_running_loop().time()
        try:
            await self._session.call(address, command, UPLOAD_TIMEOUT)
        except MQError as error:
            self._taken.pop((topic, address), None)
            # A refusal is the same the next time, unless the class is another: not each second.
            if self._session.is_connected(address):
                self._taken[topic, address] = self._session.connection(address), now
            self._tell(topic, address, f"topic {topic}: {error}")
        else:
            self._taken[topic, address] = self._session.connection(address), now
            self._told.pop((topic, address), None)

    def _tell(self, topic: str, address: str, text: str) -> None:
        if self._told.get((topic, address)) != text:
            self._told[topic, address] = text
            log.error("group %s: class %s is not in force: %s",
                      self._group, self._filters[topic], text)  # fmt: skip
