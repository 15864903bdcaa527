"""A TubeMQ broker: its parts, started in order and stopped in reverse."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from mq.daemons import exporters
from mq.daemons.lifecycle import Lifecycle
from mq.daemons.memory import MemoryBudget
from mq.daemons.state_file import make_folder
from mq.daemons.supervision import Tasks
from mq.daemons.tube.broker.access import ACCESS_FILE, Access
from mq.daemons.tube.broker.admin import BrokerAdmin
from mq.daemons.tube.broker.config import BrokerSettings, fixed_topics
from mq.daemons.tube.broker.consumers import Consumers
from mq.daemons.tube.broker.gets import MAX_TRANSFER, Gets
from mq.daemons.tube.broker.master_link import VERSION, MasterLink
from mq.daemons.tube.broker.offsets import FILE, FOLDER, Offsets
from mq.daemons.tube.broker.registrations import Registrations
from mq.daemons.tube.broker.sends import Sends
from mq.daemons.tube.broker.serving import Serving
from mq.daemons.tube.broker.status import ServiceStatus
from mq.daemons.tube.broker.store.flusher import Flusher
from mq.daemons.tube.broker.stores import Opened, Stores
from mq.daemons.tube.broker.topics import Topic, Topics
from mq.daemons.tube.rpc import MAX_SEND, Route, RpcListener
from mq.daemons.tube.web import WebServer
from mq.protocol.tube.codes import Method
from mq.protocol.tube.messages import (
    CommitOffsetRequestC2B,
    GetMessageRequestC2B,
    HeartBeatRequestC2B,
    RegisterRequestC2B,
)
from mq.protocol.tube.settings import BrokerDefaults, TopicSettings, checksum

if TYPE_CHECKING:
    from mq.daemons.metrics import Metric

log = logging.getLogger(__name__)

# The state file of the topics, under primaryPath.
TOPICS_FILE = "topics.json"

_EXPIRY_INTERVAL = 0.5  # seconds between checks for expired consumers
_OFFSETS_INTERVAL = 3600.0  # and for expired offsets of groups

Hook = Callable[["Broker"], Awaitable[None]]


class Broker(Lifecycle):
    """A broker in this process: `async with Broker(settings) as broker`.

    With port 0 a free port is chosen; `port`, `tls_port` and `web_port` are the actual ones.
    ``before_registering`` is called once, when these are known and before a master is contacted;
    clients are accepted when one has answered, or none does.

    Raises OSError if it cannot listen, and CannotStart if a store cannot be served.
    """

    def __init__(self, settings: BrokerSettings, before_registering: Hook | None = None) -> None:
        self.settings = settings
        self.tasks: Tasks
        self.serving: Serving
        self.sends: Sends
        self.gets: Gets
        self.flusher: Flusher
        self.listeners: dict[str, RpcListener] = {}
        self.link: MasterLink | None = None
        self.web: WebServer | None = None
        self.metrics_port = -1  # none
        self._before_registering = before_registering

    @property
    def port(self) -> int:
        return self.listeners["main"].port

    @property
    def tls_port(self) -> int | None:
        return self.listeners["tls"].port if "tls" in self.listeners else None

    @property
    def web_port(self) -> int:
        return -1 if self.web is None else self.web.port

    @property
    def address(self) -> str:
        """host:port for clients."""
        return f"{self.settings.broker.host_name}:{self.port}"

    async def _start(self, parts: AsyncExitStack) -> None:
        self.tasks = await parts.enter_async_context(Tasks())
        await self._open(parts)
        await self._listen(parts)
        if self._before_registering is not None:
            await self._before_registering(self)
        await self._learn_topics(parts)
        self.serving.is_started = True
        # Not earlier: after a 503 a producer avoids a broker for 50 s, and after a refused
        # connection it retries at once.
        for listener in self.listeners.values():
            await listener.start()
        self._spawn()
        await self._administer(parts)

    async def __aexit__(self, *exc: object) -> None:
        for listener in self.listeners.values():
            listener.stopping = True  # reported by an exception, for the same reason
            listener.stop_accepting()
        await self.tasks.close()  # before the thread that they use
        await super().__aexit__(*exc)

    # parts ------------------------------------------------------------------------------------

    async def _open(self, parts: AsyncExitStack) -> None:
        """Open the store, offsets and topics of the previous run."""
        config = self.settings.broker
        root = Path(config.primary_path)
        self.flusher = Flusher()
        parts.push_async_callback(self.flusher.close)
        folder = Path(config.offset_stg_file_path or root) / FOLDER
        offsets = Offsets(folder / FILE, config.number)
        stores = Stores(
            root, config.max_segment_size, config.max_index_segment_size, config.flush_mode,
            self.flusher, self._lower_offsets,
        )  # fmt: skip
        parts.push_async_callback(stores.close)  # if the start fails
        await asyncio.to_thread(stores.open_root)
        await asyncio.to_thread(make_folder, folder)
        await asyncio.to_thread(offsets.load)
        parts.push_async_callback(self._save_offsets, offsets)
        topics = Topics(root / TOPICS_FILE)
        access = Access(config.visit_token_check_in_valid_time_ms, root / ACCESS_FILE)
        if config.masters():
            await asyncio.to_thread(topics.load)
            await asyncio.to_thread(access.load)
        within = config.io_excpt_stats_duration_ms
        self.serving = Serving(
            config.number,
            config.host_name,
            topics,
            stores,
            offsets,
            Consumers(config.consumer_reg_timeout_ms / 1000, lambda one: reg.timed_out(one)),
            access,
            ServiceStatus("reading", config.allowed_read_io_excpt_cnt, within),
            ServiceStatus("sending", config.allowed_write_io_excpt_cnt, within),
            min(config.transfer_size, MAX_TRANSFER),
            config.index_trans_count,
            config.update_consumer_offsets,
        )
        reg = self._registrations = Registrations(self.serving)
        self.sends, self.gets = Sends(self.serving), Gets(self.serving)
        await stores.open(topics)

    async def _listen(self, parts: AsyncExitStack) -> None:
        settings = self.settings
        operation, config = settings.operation, settings.broker
        memory = MemoryBudget(
            lambda: operation.connection_memory_max_bytes,
            lambda: operation.client_memory_max_bytes,
        )
        host, routes = settings.listen_host(), self._routes()
        ports = {"main": (config.port, None)}
        if config.tls_enable:
            ports["tls"] = (config.tls_port, settings.tls.server_context())  # type: ignore[assignment]
        for name, (port, tls) in ports.items():
            listener = RpcListener(
                routes, host, port, tls=tls, memory=memory,
                max_connections=lambda: operation.max_connections,
                held_files=lambda: self.serving.stores.held_files,
            )  # fmt: skip
            await listener.bind()
            parts.push_async_callback(listener.close)
            self.listeners[name] = listener
        # Stores close before connections: clients that wait for a flush get an answer.
        parts.push_async_callback(self.serving.stores.close)
        parts.push_async_callback(self.gets.close)

    def _routes(self) -> dict[Method, Route]:
        registrations = self._registrations
        return {
            Method.SEND_MESSAGE_P2B: Route(self.sends.handle, limit=MAX_SEND),
            Method.CONSUMER_REGISTER_C2B: Route(registrations.register, RegisterRequestC2B),
            Method.CONSUMER_HEARTBEAT_C2B: Route(registrations.heartbeat, HeartBeatRequestC2B),
            Method.GET_MESSAGES_C2B: Route(self.gets.handle, GetMessageRequestC2B),
            Method.CONSUMER_COMMIT_C2B: Route(registrations.commit, CommitOffsetRequestC2B),
        }

    async def _learn_topics(self, parts: AsyncExitStack) -> None:
        config, serving = self.settings.broker, self.serving
        if not config.masters():
            texts = tuple(
                str(TopicSettings(name, partitions=partitions, stores=stores))
                for name, partitions, stores in fixed_topics(config.topic_list)
            )
            defaults = str(BrokerDefaults())
            await serving.stores.open(serving.topics.understood(defaults, texts).values())
            serving.topics.take(0, checksum(defaults, texts), defaults, texts)
            return
        self.link = link = MasterLink(
            config, serving, self.port, self.tls_port, serving.stores.open, self._remove_topic
        )
        parts.push_async_callback(link.close)
        await link.start()
        link.is_online = True

    async def _remove_topic(self, topic: Topic) -> None:
        """Delete all data of a topic. Raises OSError."""
        for consumer in self.serving.consumers:
            if consumer.topic == topic.name:
                self.serving.consumers.remove(consumer)
        await self.serving.stores.remove(topic)
        await self.serving.offsets.forget_topics(frozenset({topic.name}))

    async def _lower_offsets(self, opened: Opened) -> None:
        """Lower offsets of groups that are beyond the end of a recovered store. Raises OSError."""
        if self.settings.broker.update_consumer_offsets:
            ends = {key: store.max_index for key, store in opened.items()}
            await self.serving.offsets.lower(ends)

    def _spawn(self) -> None:
        config, serving = self.settings.broker, self.serving
        if self.link is not None:
            self.tasks.spawn(self.link.run, "heartbeats to masters")
        period = config.offset_stg_file_sync_ms / 1000
        self.tasks.spawn(lambda: self.flusher.run_checkpoints(serving.stores), "checkpoints")
        self.tasks.spawn(lambda: serving.offsets.run_saves(period), "saves of offsets")
        self.tasks.spawn(self._expire_consumers, "expiry of consumers")
        self.tasks.spawn(self._expire_offsets, "expiry of offsets")
        self.tasks.spawn(self._clean, "retention")

    async def _administer(self, parts: AsyncExitStack) -> None:
        config, settings = self.settings.broker, self.settings
        if config.web_port >= 0:
            admin = BrokerAdmin(self.serving, config.conf_mod_auth_token, VERSION)
            self.web = WebServer(
                settings.listen_host(), config.web_port, {"/broker.htm": admin.methods}
            )
            await parts.enter_async_context(self.web)
        if exporters.are_wanted(settings.operation):
            self.metrics_port = await exporters.start_exporters(
                settings.operation, self._metrics, self.tasks, parts
            )

    # tasks ------------------------------------------------------------------------------------

    async def _expire_consumers(self) -> None:
        while True:
            await asyncio.sleep(_EXPIRY_INTERVAL)
            self.serving.consumers.expire()

    async def _expire_offsets(self) -> None:
        while True:
            for group in self.serving.offsets.expire(self.settings.broker.grp_offset_stg_exp_ms):
                log.info("offsets of %s have expired", group)
            await asyncio.sleep(_OFFSETS_INTERVAL)

    async def _clean(self) -> None:
        while True:
            await asyncio.sleep(self.settings.broker.log_clearup_duration_ms / 1000)
            await self.serving.stores.clean(self.serving.topics)

    async def _save_offsets(self, offsets: Offsets) -> None:
        try:
            await offsets.file.close()
        except OSError as error:
            log.error("the last commits are not saved: %s", error)

    # the daemon's protocol --------------------------------------------------------------------

    def ready_text(self) -> str:
        """Return the log line for a ready broker, with its address."""
        return f"The TubeMQ broker {self.serving.broker_id} boot success. address {self.address}"

    def status_text(self) -> str:
        texts = [self.ready_text()]
        if self.link is not None and not self.link.is_answered:
            texts.append(f"not registered at a master: {self.link.last_error}")
        broken = [store.key for store in self.serving.stores if store.is_broken]
        if broken:
            texts.append(f"broken stores: {', '.join(sorted(broken)[:5])}")
        return "; ".join(texts)

    def reload(self) -> None:
        """SIGHUP: there is no file to read again."""
        log.info("a TubeMQ broker's settings are read at its start only")

    def _metrics(self) -> Iterator["Metric | None"]:
        from mq.daemons.tube.broker.metrics import metrics_of  # imported only if metrics are read

        return metrics_of(
            self.serving, self.listeners, self.sends, self.gets, self.link, self.tasks
        )

    def state(self) -> Iterator[str]:
        """Yield lines about its state."""
        from mq.daemons.state_dump import limited  # rarely needed

        for name, listener in self.listeners.items():
            yield f"listener {name}: port {listener.port}, {len(listener.channels)} connections"
        if self.link is not None:
            yield f"master: {self.link.master or 'none: ' + self.link.last_error}"
        yield from self.tasks.state()
        serving = self.serving
        yield f"consumers: {len(serving.consumers)}, offsets: {len(serving.offsets)}"
        stores = [
            f"store {one.key}: data {one.min_data} to {one.max_data}, "
            f"index {one.min_index} to {one.max_index}" + (", broken" if one.is_broken else "")
            for one in serving.stores
        ]
        yield f"stores: {len(stores)}"
        yield from limited(sorted(stores), "stores")
