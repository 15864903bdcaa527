"""A pytest plugin: a broker for each test that requests one, in a fraction of a second.

pytest finds the plugin if mq is installed. A test requests a fixture:

    def test_orders_are_announced(mq_broker):
        announce(order, name_server=mq_broker.name_server)
        [message] = mq_broker.wait_for_messages("Orders", 1)
        assert message.body == b"..."

- `mq_broker`: a name server and a broker for this test alone, with an empty store.
- `mq_session_broker`: one for the whole run; tests separate themselves by their topics.
- `mq_topic`: the name of a topic on it that no other test has.
- `mq_tube`: a TubeMQ master and broker for this test alone.

The setting `mq_broker_settings` (a list of name=value lines in the ini file) applies to all of
them.
"""

import asyncio
import errno
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import pytest

from mq.port_shares import SHARES, share

if TYPE_CHECKING:
    from mq.client import Admin, SendResult, Session
    from mq.daemons.standalone import Standalone
    from mq.daemons.tube.standalone import TubeStandalone
    from mq.protocol.bodies import MessageQueue
    from mq.protocol.message import StoredMessage

T = TypeVar("T")

_SETTINGS = "mq_broker_settings"
_PAUSE = 0.01  # seconds between two polls of a condition
_START_SECONDS = 30.0
_PORTS = range(12_000, 20_000, 5)
_given: dict[int, None] = {}  # the first port of each pair given by this process, the oldest first
_giving = threading.Lock()


class _InThread:
    """Daemons in a thread of this process: a context manager."""

    def start(self) -> None:
        """Start them; returns when they serve."""
        self._take_ports()
        self._loop = _event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="mq", daemon=True)
        self._thread.start()
        try:
            self._run(self._open, _START_SECONDS)
        except BaseException:
            self._end()
            raise

    def stop(self) -> None:
        """Stop them; their data stays in the folder. Safe to call again."""
        if self._loop.is_closed():
            return
        try:
            self._run(self._close, _START_SECONDS)
        finally:
            self._end()

    def restart(self) -> None:
        """Stop them and start them on the same ports and store, like an upgrade."""
        self.stop()
        self.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _take_ports(self) -> None:
        raise NotImplementedError

    async def _open(self) -> None:
        raise NotImplementedError

    async def _close(self) -> None:
        raise NotImplementedError

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Callable[[], Coroutine[Any, Any, T]], timeout: float | None = None) -> T:
        """Run a coroutine in the thread of the daemons."""
        return asyncio.run_coroutine_threadsafe(work(), self._loop).result(timeout)


class RunningBroker(_InThread):
    """A name server and a broker in a thread of this process, on loopback: a context manager.

    Clients of any kind, in any thread or process, reach them at `name_server`.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        """Keep messages in ``folder``. `settings` are the broker's, by their names in broker.conf.

        Entering raises the error that prevents the start: OSError, ConfigError for a setting.
        """
        self.folder = folder
        self._settings = dict(settings or {})
        self._ports: tuple[int, int] | None = None  # of both, the same after a restart
        self._pair: Standalone
        self._session: Session

    @property
    def name_server(self) -> str:
        """host:port of the name server, the only address that clients need."""
        return self._pair.name_server_address

    @property
    def address(self) -> str:
        """host:port of the broker."""
        return self._pair.broker.address

    def create_topic(self, name: str, queues: int = 4) -> None:
        """Create a topic, or change its number of queues."""
        from mq.protocol.bodies import TopicConfig

        config = TopicConfig(
            topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=6
        )
        self._run(lambda: self._admin().create_topic(self.address, config))

    def send(
        self,
        topic: str,
        body: bytes,
        *,
        tags: str | None = None,
        keys: tuple[str, ...] = (),
        properties: Mapping[str, str] | None = None,
    ) -> "SendResult":
        """Send a message to a topic, which is created if it is absent."""
        from mq.client import Producer
        from mq.protocol.message import Message

        message = Message(topic, body, tags=tags, keys=keys, properties=dict(properties or {}))

        async def work() -> "SendResult":
            async with Producer(self.name_server) as producer:
                return await producer.send(message)

        return self._run(work)

    def messages(self, topic: str) -> list["StoredMessage"]:
        """Return all messages of a topic, in the order in which they were stored; none if it is
        absent.
        """
        return self._run(lambda: self._read(topic))

    def wait_for_messages(
        self, topic: str, count: int, timeout: float = 10.0
    ) -> list["StoredMessage"]:
        """Wait until a topic has `count` messages, and return them.

        Raises TimeoutError after `timeout` seconds, with the number of messages found.
        """
        found: list[StoredMessage] = []

        def enough() -> bool:
            found[:] = self.messages(topic)
            return len(found) >= count

        if not _wait_until(enough, timeout):
            raise TimeoutError(
                f"topic {topic} has {len(found)} messages after {timeout:g} s, not {count}"
            )
        return found

    def lag(self, group: str, topic: str) -> int:
        """Return the number of messages of a topic that a consumer group has not committed yet."""
        return self._run(lambda: self._lag(group, topic))

    def wait_until_consumed(self, group: str, topic: str, timeout: float = 10.0) -> None:
        """Wait until a group has committed all of a topic. Consumers commit every 5 s and when they
        close.

        Raises TimeoutError after `timeout` seconds, with the number of messages left.
        """
        left = 0

        def done() -> bool:
            nonlocal left
            left = self.lag(group, topic)
            return left == 0

        if not _wait_until(done, timeout):
            raise TimeoutError(
                f"group {group} has {left} messages of topic {topic} left after {timeout:g} s"
            )

    # lifecycle -----------------------------------------------------------------------------------

    def _take_ports(self) -> None:
        self._ports = self._ports or free_ports()

    async def _open(self) -> None:
        from mq.client.transport.session import Session
        from mq.daemons.standalone import Standalone

        assert self._ports is not None
        name_server_port, broker_port = self._ports
        pair = Standalone(
            self.folder,
            name_server_port=name_server_port,
            broker_port=broker_port,
            properties=self._settings,
        )
        self._pair = await pair.__aenter__()
        self._session = await Session(self.name_server).__aenter__()

    async def _close(self) -> None:
        await self._session.close()
        await self._pair.__aexit__()

    # queries -------------------------------------------------------------------------------------

    def _admin(self) -> "Admin":
        from mq.client.admin import Admin

        return Admin(self._session)

    async def _queues(self, topic: str) -> list[tuple["MessageQueue", int, int]]:
        """Return each queue of a topic with its first offset and its end."""
        from mq.client.errors import RouteNotFound, TopicNotExist

        try:
            stats = await self._admin().whole_topic_stats(topic)
        except (RouteNotFound, TopicNotExist):
            return []
        return [(q, at.min_offset, at.max_offset) for q, at in stats.offset_table.items()]

    async def _read(self, topic: str) -> list["StoredMessage"]:
        from mq.client.pull.pull_consumer import PullConsumer

        found: list[StoredMessage] = []
        async with PullConsumer(self._session) as consumer:
            for queue, offset, end in await self._queues(topic):
                while offset < end:
                    result = await consumer.pull(queue, offset)
                    found += result.messages
                    if result.next_offset <= offset:
                        break
                    offset = result.next_offset
        return sorted(found, key=lambda message: message.physical_offset)

    async def _lag(self, group: str, topic: str) -> int:
        lag = 0
        for queue, first, end in await self._queues(topic):
            committed = await self._admin().query_consumer_offset(
                self.address, group, topic, queue.queue_id
            )
            lag += end - max(first, committed or 0)
        return lag


class RunningTube(_InThread):
    """A TubeMQ master and a broker in a thread of this process, on loopback: a context manager.

    TubeMQ's own clients, and ours, reach them at `master`.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        """Keep messages in ``folder``. `settings` are both daemons', by their names."""
        self.folder = folder
        self._settings = dict(settings or {})
        self._ports: tuple[int, int, int] | None = None  # the same after a restart
        self._pair: TubeStandalone

    @property
    def master(self) -> str:
        """host:port of the master, the only address that clients need."""
        return self._pair.master_address

    @property
    def web(self) -> str:
        """The URL of the master's administration."""
        return f"http://127.0.0.1:{self._pair.master.web_port}/webapi.htm"

    def create_topic(self, name: str, partitions: int = 3) -> None:
        """Create a topic; returns when it can be sent to and consumed."""
        self._run(lambda: self._pair.create_topic(name, partitions))

    def _take_ports(self) -> None:
        if self._ports is None:
            first, second = free_ports()
            self._ports = (first, first + 1, second)

    async def _open(self) -> None:
        from mq.daemons.tube.standalone import TubeStandalone

        assert self._ports is not None
        master, broker, web = self._ports
        pair = TubeStandalone(
            self.folder,
            master_port=master,
            broker_port=broker,
            web_port=web,
            properties=self._settings,
        )
        self._pair = await pair.__aenter__()

    async def _close(self) -> None:
        await self._pair.__aexit__()


def _event_loop() -> asyncio.AbstractEventLoop:
    from mq.daemons.service import loop_factory

    factory = loop_factory()
    return factory() if factory is not None else asyncio.new_event_loop()


def free_ports() -> tuple[int, int]:
    """Return ports for a name server and a broker, which also listens two ports below and one above
    its own.

    Ports from the system's range of outgoing connections are not used, because such a connection
    might occupy one during a restart. Each process has its own share of ports, so that two
    processes do not choose the same one. Within a process, where threads start daemons, recently
    given ports are given last.
    """
    firsts = list(_PORTS[share() :: SHARES])
    random.SystemRandom().shuffle(firsts)
    with _giving:
        fresh = [first for first in firsts if first not in _given]
        for first in (*fresh, *(first for first in _given if first in firsts)):
            if all(is_free(first + number) for number in (0, 1, 3, 4)):
                _given.pop(first, None)
                _given[first] = None
                return first, first + 3
    raise OSError(f"no free ports from {_PORTS.start} to {_PORTS.stop}")


def is_free(port: int) -> bool:
    """Whether this TCP port of loopback is free."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise
    return True


def _wait_until(condition: Callable[[], bool], timeout: float) -> bool:
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(_PAUSE)
    return True


# the plugin -----------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(_SETTINGS, "settings of the brokers of tests, name=value each", "linelist", [])


def _settings(config: pytest.Config) -> dict[str, str]:
    settings = {}
    for line in config.getini(_SETTINGS):
        name, equals, value = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"{_SETTINGS}: {line!r} is not name=value")
        settings[name.strip()] = value.strip()
    return settings


@pytest.fixture
def mq_broker(pytestconfig: pytest.Config, tmp_path: Path) -> Iterator[RunningBroker]:
    """A name server and a broker for one test, with an empty store."""
    with RunningBroker(tmp_path / "mq-store", _settings(pytestconfig)) as broker:
        yield broker


@pytest.fixture(scope="session")
def mq_session_broker(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningBroker]:
    """A name server and a broker for the whole run."""
    folder = tmp_path_factory.mktemp("mq-store")
    with RunningBroker(folder, _settings(pytestconfig)) as broker:
        yield broker


@pytest.fixture
def mq_topic(mq_session_broker: RunningBroker) -> str:
    """The name of a topic on `mq_session_broker` that no other test has."""
    name = f"Test{uuid.uuid4().hex}"
    mq_session_broker.create_topic(name)
    return name


@pytest.fixture
def mq_tube(tmp_path: Path) -> Iterator[RunningTube]:
    """A TubeMQ master and broker for one test, with an empty store."""
    with RunningTube(tmp_path / "mq-tube") as tube:
        yield tube
