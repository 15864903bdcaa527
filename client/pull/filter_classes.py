"""Filter classes: user code that selects messages at the filter servers of a broker.

A consumer that subscribes to a topic with a class uploads its source to every filter server in the
topic's route, after its heartbeats and on every new connection, and pulls from one of them at
random. Sources: MQClientInstance.uploadFilterClassSource, PullAPIWrapper.computPullFromWhichFilter
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
from mq.client.transport.session import Session
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.headers.filtersrv import RegisterMessageFilterClassRequestHeader

log = logging.getLogger(__name__)

UPLOAD_TIMEOUT = 5.0  # MQClientAPIImpl.registerMessageFilterClass
CHECK_SECONDS = 1.0  # between two checks for filter servers that do not have a class yet


class ClassFilter(str):
    """A subscription by a class with `match(message)` or `match(message, context)`.

        class Large:
            def match(self, message):
                return len(message.body) > 1000

        Consumer(namesrv, "billing", {"Orders": ClassFilter(Large)})

    The value is the name of the class. Only the text of the class itself is uploaded: it must
    import what it needs in its own body, and filter servers offer only a part of Python's standard
    library. If only a name is given, the filter servers must have the class as a file.
    """

    __slots__ = ("source",)

    source: str

    def __new__(cls, what: type | str, source: str | None = None) -> "ClassFilter":
        """`what` is a class, or the name of the class in `source`.

        Raises ClientError for a class whose source cannot be found or that has no `match`, and for
        a source that is not valid Python, with line and reason.
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
    """Raise ClientError for a source that no filter server could load. The source is not
    executed.
    """
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
    """Uploads the classes of a group to the filter servers of their topics."""

    def __init__(
        self, session: Session, group: str, filters: Mapping[str, ClassFilter], interval: float
    ) -> None:
        """`filters` maps topics to classes; each is uploaded again after `interval` seconds."""
        self._session = session
        self._group = group
        self._filters = filters
        self._interval = interval
        # The connection over which a filter server accepted the class of a topic, and the time.
        self._taken: dict[tuple[str, str], tuple[object, float]] = {}
        self._logged: dict[tuple[str, str], str] = {}  # the last problem that was logged

    async def upload(self) -> None:
        """Upload the classes that are due. Failures are logged and retried."""
        due = []
        there = set()
        for topic in self._filters:
            route = self._session.known_route(topic)
            servers = {} if route is None else route.filter_server_table
            addresses = {address for several in servers.values() for address in several}
            if route is not None and not addresses:
                self._log_once(topic, "", f"topic {topic} has no filter server")
            there |= {(topic, address) for address in addresses or ("",)}
            due += [(topic, address) for address in addresses if self._is_due(topic, address)]
        # Forget filter servers that left the route: a restarted one has another port.
        self._taken = {place: taken for place, taken in self._taken.items() if place in there}
        self._logged = {place: told for place, told in self._logged.items() if place in there}
        await asyncio.gather(*(self._upload(topic, address) for topic, address in due))

    async def run(self) -> None:
        """Upload each class periodically, and at once to new filter servers, until cancelled."""
        while True:
            await asyncio.sleep(min(CHECK_SECONDS, self._interval))
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
            # A refusal repeats until the class changes: wait for the interval, not for the next
            # check.
            if self._session.is_connected(address):
                self._taken[topic, address] = self._session.connection(address), now
            self._log_once(topic, address, f"topic {topic}: {error}")
        else:
            self._taken[topic, address] = self._session.connection(address), now
            self._logged.pop((topic, address), None)

    def _log_once(self, topic: str, address: str, text: str) -> None:
        if self._logged.get((topic, address)) != text:
            self._logged[topic, address] = text
            log.error("group %s: class %s is not in force: %s",
                      self._group, self._filters[topic], text)  # fmt: skip
