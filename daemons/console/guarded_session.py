"""Sessions of pages that refuse forbidden requests: the second of two checks.

The first check is at the route. This one is independent of pages: requests that are not reads
according to `mq.protocol.codes` are refused unless a change was confirmed.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from mq.client.errors import ConnectError
from mq.client.operations import dry_run
from mq.client.operations.changes import Changes
from mq.client.operations.errors import OperationError
from mq.client.transport.blocking import BlockingSession
from mq.client.transport.session import Session
from mq.daemons.console.permissions import Permission
from mq.protocol.codes import PULLS, RequestCode, kind_of
from mq.protocol.command import Command
from mq.protocol.flags import PullSysFlag
from mq.protocol.headers.send import Letter
from mq.protocol.requests import RequestKind

if TYPE_CHECKING:
    from mq.client.transport.peer import Peer
    from mq.daemons.console.security.roles import User

# Checks a request to an address: raises Forbidden, or returns a Command as the response.
Check = Callable[[str, Command], Command | None]

# Requests whose response contains message bodies.
BODIES = frozenset(
    int(code)
    for code in (
        *PULLS,
        RequestCode.QUERY_MESSAGE,
        RequestCode.VIEW_MESSAGE_BY_ID,
        RequestCode.PEEK_MESSAGE,
    )
)


class Forbidden(OperationError):
    """The user, or the console, is not permitted to do this."""


class _ClosedConnection:
    """A placeholder for a connection without writes."""

    async def drain(self) -> None:
        """Return at once: nothing is buffered."""


class LimitedSession(Session):
    """The connections of a cluster: to the configured name servers, and to brokers that they name.

    ``refused`` returns a reason to refuse a broker's address.
    """

    refused: Callable[[str], str | None] = staticmethod(lambda address: None)

    def admit(self, address: str) -> None:
        """Raise ConnectError for an address that is refused."""
        if address not in self.name_servers:
            reason = self.refused(address)
            if reason:
                raise ConnectError(address, reason)

    def request(
        self,
        address: str,
        command: Command,
        timeout: float | None = None,
        convert: "Callable[[Command], Any] | None" = None,
    ) -> "asyncio.Future[Any]":
        """Like `Session`'s. Raises ConnectError for an address that is refused."""
        self.admit(address)
        return super().request(address, command, timeout, convert)  # type: ignore[arg-type]

    def send_oneway(self, address: str, command: Command) -> "Peer":
        """Like `Session`'s. Raises ConnectError for an address that is refused."""
        self.admit(address)
        return super().send_oneway(address, command)


class GuardedSession(Session):
    """A session over the connections of another one that checks each request.

    It opens no connections and owns nothing: closing it closes none.
    """

    def __init__(self, base: LimitedSession, check: Check) -> None:
        super().__init__(base.name_servers or base.address_server or (), base.options)
        self._base = base
        self._check = check
        self.share(base)

    def share(self, base: LimitedSession) -> None:
        """Use the routes of ``base`` once it is open."""
        self._routes = base._routes
        self._loop = base._loop
        self.name_servers = base.name_servers

    def request(
        self,
        address: str,
        command: Command,
        timeout: float | None = None,
        convert: "Callable[[Command], Any] | None" = None,
    ) -> "asyncio.Future[Any]":
        """Like the base's. Raises Forbidden."""
        answer = self._check(address, command)
        if answer is None:
            return self._base.request(address, command, timeout, convert)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        future.set_result(answer if convert is None else convert(answer))
        return future

    def send_oneway(self, address: str, command: Command) -> "Peer":
        """Like the base's. Raises Forbidden."""
        if self._check(address, command) is None:
            return self._base.send_oneway(address, command)
        return cast("Peer", _ClosedConnection())

    def forward(self, address: str, command: Command, seconds: float, waiter: Any) -> None:
        """Raise Forbidden: a console forwards no requests."""
        raise Forbidden("a console does not forward requests")

    def is_connected(self, address: str) -> bool:
        return self._base.is_connected(address)

    def connection(self, address: str) -> object | None:
        return self._base.connection(address)

    def ended(self, address: str) -> "asyncio.Future[None]":
        return self._base.ended(address)

    def _reaches(self, address: str) -> bool:
        return self._base._reaches(address)

    async def open(self) -> None:
        """Do nothing: it is open as long as its base."""
        self.share(self._base)

    async def close(self) -> None:
        """Stop background tasks; the connections belong to the base."""
        self._stop_refreshing()
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def blocking(self) -> BlockingSession:
        """Return a session for another thread, with the same check."""
        return _GuardedBlocking(self._base, self._check)


class _GuardedBlocking(BlockingSession):
    """The same without an event loop, over its own connections."""

    def __init__(self, base: LimitedSession, check: Check) -> None:
        super().__init__(base.name_servers or base.address_server or (), base.options)
        self._base = base
        self._check = check

    async def invoke(self, address: str, command: Command, timeout: float | None = None) -> Command:
        answer = self._check(address, command)
        if answer is None:
            self._base.admit(address)
            answer = await super().invoke(address, command, timeout)
        return answer

    async def invoke_oneway(self, address: str, command: Command) -> None:
        if self._check(address, command) is None:
            self._base.admit(address)
            await super().invoke_oneway(address, command)

    def blocking(self) -> BlockingSession:
        return _GuardedBlocking(self._base, self._check)


def reads_only(address: str, command: Command) -> None:
    """Allow requests that change nothing. Raises Forbidden."""
    if command.code in PULLS:
        flags = int(command.fields.get("sysFlag") or 0)
        if flags & PullSysFlag.COMMIT_OFFSET:
            raise Forbidden("pages must not commit offsets")
    if kind_of(command.code) is not RequestKind.READ:
        raise Forbidden(f"{_name(command.code)} is not a read: pages only read")


def reader_check(user: "User", cluster: str) -> Check:
    """Return a check that allows what this user may see."""

    def check(address: str, command: Command) -> None:
        reads_only(address, command)
        needs = Permission.BODIES if command.code in BODIES else Permission.READ
        check_subjects(user, cluster, needs, command)

    return check


def of_reader(base: LimitedSession, user: "User", cluster: str) -> GuardedSession:
    """Return a session for what this user may see."""
    return GuardedSession(base, reader_check(user, cluster))


def of_changer(
    base: LimitedSession, user: "User", cluster: str, needs: Permission, changes: Check
) -> GuardedSession:
    """Return a session for a change that needs this permission.

    Reads need the user's permissions. Other requests are checked for the user's subjects; then
    ``changes`` allows, refuses or answers them.
    """
    reads = reader_check(user, cluster)

    def check(address: str, command: Command) -> Command | None:
        if kind_of(command.code) is RequestKind.READ:
            return reads(address, command)
        check_subjects(user, cluster, needs, command)
        return changes(address, command)

    return GuardedSession(base, check)


def recording(changes: Changes) -> Check:
    """Return a check that records changes instead of sending them (`mq … --dry-run`)."""

    def check(address: str, command: Command) -> Command | None:
        return dry_run.answer(changes, address, command)

    return check


# The fields of requests with a topic or a group, by their names on the wire.
_TOPIC_FIELDS = ("topic", "originTopic", "topicList")
_GROUP_FIELDS = (
    *("group", "consumerGroup", "groupName", "subscriptionGroup"),
    *("srcGroup", "destGroup", "compareGroup", "filterGroups"),
)
_SEVERAL = {"topicList": ";", "filterGroups": ","}  # separators of names
_LOCKS = (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ)  # their body has the queues
_SHORT_SENDS = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)


def check_subjects(user: "User", cluster: str, needs: Permission, command: Command) -> None:
    """Raise Forbidden if the user lacks the permission, or lacks it for the request's topic or
    group.
    """
    if not user.may(cluster, needs):
        raise Forbidden(f"this user may not send {_name(command.code)}")
    if user.topics == user.groups == ("*",):
        return
    topics, groups = _subjects(command)
    # Reads of messages use a group of tools, which needs no permission.
    for topic in topics:
        if not user.may(cluster, needs, topic=topic):
            raise Forbidden(f"this user has no such permission for topic {topic}")
    for group in () if command.code in BODIES else groups:
        if not user.may(cluster, needs, group=group):
            raise Forbidden(f"this user has no such permission for group {group}")
    if (
        not topics
        and not groups
        and (
            command.code == RequestCode.VIEW_MESSAGE_BY_ID
            or kind_of(command.code) in (RequestKind.WRITE, RequestKind.SEND)
        )
    ):
        raise Forbidden(f"{_name(command.code)} names no topic or group")


def _subjects(command: Command) -> tuple[list[str], list[str]]:
    """Return the topics and groups that a request names."""
    fields = command.fields
    topics = [one for name in _TOPIC_FIELDS for one in _names(fields, name)]
    groups = [one for name in _GROUP_FIELDS for one in _names(fields, name)]
    if command.code in _SHORT_SENDS and fields.get(Letter.TOPIC):
        topics.append(str(fields[Letter.TOPIC]))
    if command.code in _LOCKS:
        from mq.protocol.bodies import LockBatchRequestBody

        # The group is one of tools; the queues are locked.
        locked = LockBatchRequestBody.decode(command.body)
        return [*topics, *sorted({queue.topic for queue in locked.mq_set})], []
    if command.code == RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP:
        from mq.protocol.bodies import SubscriptionGroupConfig

        groups.append(SubscriptionGroupConfig.decode(command.body).group_name or "")
    return topics, groups


def _names(fields: Mapping[str, Any], name: str) -> list[str]:
    text = str(fields.get(name) or "")
    parts = text.split(_SEVERAL[name]) if name in _SEVERAL else [text]
    return [one for one in parts if one]


def _name(code: int) -> str:
    try:
        return RequestCode(code).name
    except ValueError:
        return f"request {code}"
