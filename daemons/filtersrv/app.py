"""A filter server: starts its components in order and stops them in reverse order.

    classes      of topics and groups, each with its sandbox
    broker link  registers with the broker, and pulls from it
    listener     serves consumers

A filter server reads every topic of its broker, so it requires from consumers what the broker
would: permission to read the topic, as the group. A class is code that runs here: it is accepted
from administrators, and from the accounts that filterUploadAccounts names.
"""

import asyncio
import logging
import os
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from mq.client.credentials import AccessKey, read_access_key
from mq.client.errors import ClientError
from mq.daemons import exporters
from mq.daemons.config import ConfigError
from mq.daemons.dispatch import Dispatcher
from mq.daemons.filtersrv.broker_link import BrokerLink
from mq.daemons.filtersrv.classes import Classes
from mq.daemons.filtersrv.config import FiltersrvSettings
from mq.daemons.filtersrv.folder import watch_folder
from mq.daemons.filtersrv.handlers import FilterHandlers
from mq.daemons.lifecycle import Lifecycle
from mq.daemons.listener import Listener
from mq.daemons.memory import MemoryBudget
from mq.daemons.request_codes import handlers_of
from mq.daemons.supervision import Tasks
from mq.daemons.tls import ServerTls, server_tls

if TYPE_CHECKING:
    from mq.daemons.metrics import Metric

from mq.daemons.acl.addresses import parts_of
from mq.daemons.acl.errors import AclError
from mq.daemons.acl.files import AclFiles
from mq.daemons.broker.acl.access import AccessControl
from mq.daemons.channel import Channel
from mq.daemons.filtersrv.classes import Key
from mq.daemons.metrics import Kind, Metric, counter, gauge, of_listeners, of_tasks
from mq.protocol.command import Command
from mq.protocol.signature import ACCESS_KEY

log = logging.getLogger(__name__)

MINUTE = 60.0

EVERY_ACCOUNT = "*"

# Variable with the access key and secret for requests to the broker, set by the broker that starts
# this process.
KEY_VARIABLE = "MQ_FILTER_SERVER_KEY"

REMOVE_SECONDS = 60.0
CHECK_SECONDS = 1.0  # between two checks of idle sandboxes


class GroupStats:
    """GROUP_GET_NUMS and GROUP_GET_SIZE of each topic@group (FilterServerStatsManager)."""

    def __init__(self, classes: Classes) -> None:
        self._classes = classes
        self._last: dict[Key, tuple[int, int]] = {}

    async def run(self) -> None:
        """Log the statistics every minute, until cancelled."""
        while True:
            await asyncio.sleep(MINUTE)
            self.log_minute()

    def log_minute(self) -> None:
        """Log the messages of each group since the last call."""
        last, self._last = self._last, {}
        for key, kept in self._classes.table.items():
            now = kept.counts.messages, kept.counts.bytes
            self._last[key] = now
            for name, value, before in zip(
                ("GROUP_GET_NUMS", "GROUP_GET_SIZE"), now, last.get(key, (0, 0)), strict=True
            ):
                before = before if before <= value else 0  # the class was removed meanwhile
                log.info("[%s] [%s] Stats In One Minute, SUM: %d TPS: %.2f",
                         name, key, value - before, (value - before) / MINUTE)  # fmt: skip


def metrics_of(listener: Listener, tasks: Tasks, classes: Classes) -> Iterator[Metric]:
    """The metrics of a filter server."""
    yield from of_listeners({"main": listener})
    yield of_tasks(tasks)
    yield gauge("mq_filter_classes", "Filter classes in use.", len(classes.table))
    yield gauge(
        "mq_filter_sandboxes",
        "Running sandboxes.",
        sum(kept.sandbox is not None for kept in classes.table.values()),
    )
    yield counter("mq_filter_sandbox_ends_total", "Sandboxes ended after an error or a limit.",
                  classes.ends)  # fmt: skip
    table = sorted(classes.table.items())
    labels = ("topic", "group")
    for name, doc, values in (
        ("seen", "Messages passed to a filter class.", [k.counts.seen for _, k in table]),
        ("messages", "Messages delivered to a group.", [k.counts.messages for _, k in table]),
        ("bytes", "Bytes delivered to a group.", [k.counts.bytes for _, k in table]),
        (
            "failures",
            "Batches on which a filter class failed.",
            [k.counts.failures for _, k in table],
        ),
    ):
        pairs = [(tuple(key), float(value))
                 for (key, _), value in zip(table, values, strict=True)]  # fmt: skip
        yield Metric(f"mq_filter_{name}_total", Kind.counter, doc, labels, pairs)


class FilterAccess(AccessControl):
    """The guard of a filter server. Raises ConfigError if the ACL files are invalid."""

    def __init__(self, settings: FiltersrvSettings) -> None:
        own = settings.filtersrv
        super().__init__(AclFiles(Path(own.rocketmq_home or "."), own.acl_plain_file))
        parts = own.filter_upload_accounts.replace(",", ";").split(";")
        self._uploaders = frozenset(part.strip() for part in parts if part.strip())

    def check_upload(self, command: Command, channel: Channel) -> None:
        """Raises Refused unless the sender of an upload that has passed the guard may upload
        classes.
        """
        access_key = command.fields.get(ACCESS_KEY, "")
        if self._uploaders & {EVERY_ACCOUNT, access_key}:
            return
        parts = parts_of(channel.remote_address[0])
        if any(matches(parts) for matches in self.rules.global_matchers):
            return
        account = self.rules.accounts.get(access_key)
        if account is None or not account.admin:
            raise self.refusal(
                command.code,
                channel,
                AclError(
                    f"accessKey={access_key} may not upload classes: it is not an administrator, "
                    "and filterUploadAccounts does not name it"
                ),
            )


class FilterServer(Lifecycle):
    """A filter server in this process: `async with FilterServer(settings) as server`.

    Raises OSError if it cannot listen, ConfigError for invalid files.
    """

    def __init__(self, settings: FiltersrvSettings) -> None:
        self.settings = settings
        self.tasks = Tasks()
        self.listener: Listener
        self.classes = Classes(settings)
        self.broker: BrokerLink
        self.access: FilterAccess | None = None
        self.metrics_port = -1  # none
        self._tls: ServerTls | None = None

    @property
    def port(self) -> int:
        return self.listener.port

    @property
    def address(self) -> str:
        """host:port as announced to consumers."""
        return f"{self.settings.filtersrv.filter_server_ip}:{self.port}"

    async def _start(self, parts: AsyncExitStack) -> None:
        settings, tasks = self.settings, self.tasks
        if settings.filtersrv.acl_enable:
            self.access = FilterAccess(settings)
        self._tls = server_tls(settings.tls)
        tls = settings.tls.client_context() if settings.tls.enable else None
        self.broker = BrokerLink(settings.filtersrv.connect_which_broker, tls, broker_key(settings))
        await parts.enter_async_context(self.broker.session)
        await self.classes.check_sandbox()
        parts.push_async_callback(self.classes.close)
        await parts.enter_async_context(tasks)
        self.listener = await parts.enter_async_context(self._listener())
        tasks.spawn(lambda: self.broker.keep_registered(self.address), "registration")
        tasks.spawn(self._remove_unused, "unused classes")
        tasks.spawn(self._check_idle, "idle sandboxes")
        tasks.spawn(GroupStats(self.classes).run, "statistics")
        if not settings.filtersrv.client_upload_filter_class_enable:
            tasks.spawn(lambda: watch_folder(settings, self.classes), "folder of classes")
        if self._tls is not None:
            tasks.spawn(self._tls.watch, "certificates")
        if self.access is not None:
            tasks.spawn(self.access.watch, "ACL files")
        if exporters.are_wanted(settings.operation):
            self.metrics_port = await exporters.start_exporters(
                settings.operation, self._metrics, tasks, parts
            )

    def _listener(self) -> Listener:
        settings, access = self.settings, self.access
        server, operation = settings.server, settings.operation
        dispatcher = Dispatcher({}, guard=access)  # a pull may be suspended: none counts as slow
        listener = Listener(
            dispatcher,
            settings.listen_host,
            server.listen_port,
            idle_seconds=server.server_channel_max_idle_time_seconds,
            backlog=server.server_socket_backlog,
            buffers=server.buffers(),
            tls=self._tls,
            max_connections=lambda: settings.operation.max_connections,
            memory=MemoryBudget(
                lambda: operation.connection_memory_max_bytes,
                lambda: operation.client_memory_max_bytes,
            ),
        )
        more = () if access is None else (access.check_upload,)
        dispatcher.serve(handlers_of(FilterHandlers(settings, self.classes, self.broker, *more)))
        return listener

    async def _check_idle(self) -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            self.classes.check_idle()

    async def _remove_unused(self) -> None:
        while True:
            await asyncio.sleep(REMOVE_SECONDS)
            await self.classes.remove_unused()

    def ready_text(self) -> str:
        """The line that reports that the filter server is ready, with its address."""
        return (
            f"The Filter Server boot success. serializeType=JSON, address {self.address}, broker "
            f"{self.settings.filtersrv.connect_which_broker}"
        )

    def status_text(self) -> str:
        registered = self.broker.registered.is_set()
        text = f"{self.ready_text()}; {len(self.classes.table)} classes"
        text += "" if registered else "; not registered with its broker"
        return text + (f"; {self.classes.refused}" if self.classes.refused else "")

    def reload(self) -> None:
        """Read certificates and accounts again."""
        if self._tls is not None:
            self._tls.reload()
        if self.access is not None:
            self.access.reload()

    def _metrics(self) -> "Iterator[Metric]":
        return metrics_of(self.listener, self.tasks, self.classes)

    def state(self) -> Iterator[str]:
        """The lines of the state dump."""
        from mq.daemons.state_dump import connections, limited  # hardly ever needed

        yield from connections("main", self.listener)
        yield from self.tasks.state()
        yield f"broker {self.broker.broker_name or 'not registered'}"
        lines = [
            f"{key}: {kept.name}, process {kept.sandbox.pid if kept.sandbox else 0}, "
            f"{kept.counts.messages} of {kept.counts.seen} messages delivered, "
            f"{kept.counts.failures} failures"
            for key, kept in self.classes.table.items()
        ]
        yield f"classes: {len(lines)}"
        yield from limited(sorted(lines), "classes")


def broker_key(settings: FiltersrvSettings) -> AccessKey | None:
    """The key that signs requests to the broker. Raises ConfigError for a file without one."""
    given = os.environ.pop(KEY_VARIABLE, "")
    path = settings.filtersrv.broker_acl_file
    # a broker identifies the filter servers that it has started by their key
    if path and not given:
        try:
            return read_access_key(Path(path))
        except ClientError as error:
            raise ConfigError(f"brokerAclFile: {error}") from None
    access_key, _, secret = given.partition(":")
    return AccessKey(access_key, secret) if access_key and secret else None
