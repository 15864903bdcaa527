"""Who one client is to masters and brokers, and how it asks them."""

import os
from collections.abc import Iterable, Mapping
from typing import Protocol

from google.protobuf.message import Message

from mq.client.errors import BadAnswer, ClientError
from mq.client.machine import clock, random_ids
from mq.client.tube.credentials import Identity
from mq.client.tube.errors import StandbyMaster, TubeError, for_code
from mq.client.tube.flow import GroupFlow
from mq.client.tube.options import TubeClientOptions, TubeConsumerOptions
from mq.client.tube.service import TubeService
from mq.protocol.tube.codes import Code, Method
from mq.protocol.tube.errors import IllegalName, MalformedRpc, RemoteFailure
from mq.protocol.tube.messages import M, parse
from mq.protocol.tube.names import check_filter_items, check_group, check_topic, check_topics
from mq.protocol.tube.strings import Address, TopicCondition

VERSION = "1.0.0-mq"  # the last part of the ids of clients; where the original has its release

_CHANCES = 2**31

Topics = Mapping[str, Iterable[str] | None] | Iterable[str]


class Refusable(Protocol):
    """An answer that says whether it is one."""

    @property
    def errCode(self) -> int: ...

    @property
    def errMsg(self) -> str: ...


class Subscription:
    """Topics, and the types of messages that are wanted of some of them."""

    def __init__(self, topics: Topics) -> None:
        """Raises ClientError for no topic, and for names and filter items that none may have."""
        if isinstance(topics, str):
            topics = (topics,)
        given = dict(topics) if isinstance(topics, Mapping) else dict.fromkeys(topics)
        self._wanted: dict[str, frozenset[bytes] | None] = {}
        try:
            check_topics(given)
            for topic, items in given.items():
                kept = check_filter_items(items or ())
                encoded = frozenset(item.encode() for item in kept)
                self._wanted[check_topic(topic)] = encoded or None
        except IllegalName as error:
            raise ClientError(str(error)) from None
        if not self._wanted:
            raise ClientError("a consumer needs a topic")
        self.since = clock.milliseconds()

    @property
    def topics(self) -> list[str]:
        return sorted(self._wanted)

    def wanted(self, topic: str) -> frozenset[bytes] | None:
        """The types that are wanted of a topic; None for all."""
        return self._wanted.get(topic)

    def filter_items(self, topic: str) -> list[str]:
        """The same as text, in order; none for all."""
        return sorted(item.decode() for item in self.wanted(topic) or ())

    @property
    def conditions(self) -> list[str]:
        """As masters are told of the topics that have filters."""
        return [
            str(TopicCondition(topic, tuple(items)))
            for topic in self.topics
            if (items := self.filter_items(topic))
        ]


class Member:
    """A client's names and tokens. `client_id` is there once it has joined the service."""

    def __init__(self, service: TubeService, options: TubeClientOptions) -> None:
        self.service = service
        self.client_options = options
        self.identity = Identity(options.credentials)
        self.host = "127.0.0.1"
        self.client_id = ""

    def name(self, index: int, towards: Address, first: str, kind: str = "") -> None:
        """Take the number that the service has given, and make the id of it.

        It is as the C++ client's, `first`, then `_IPv4-pid-startMillis-clientIndex-version`, with a
        number drawn by chance, as Java's has: clients with services of their own may start in the
        same millisecond, and in containers all of the rest may be the same. Two members of one id
        would be one to masters and brokers, and each confirm what the other was given.

        The colons of an IPv6 address are dots in the id: in the texts of masters they are
        delimiters.
        """
        self.host = self.service.own_host(towards).replace(":", ".")
        drawn = str(random_ids.randrange(_CHANCES))
        parts = (str(os.getpid()), str(clock.milliseconds()), str(index), drawn, kind, VERSION)
        self.client_id = "-".join((f"{first}_{self.host}", *filter(None, parts)))

    async def ask(self, address: Address, method: Method, request: Message, kind: type[M]) -> M:
        """Ask a server, and return its answer, of this kind, whatever it says.

        Raises ConnectError, RequestTimeout, BadAnswer, StandbyMaster for a master that is none
        now, and TubeError with the code RECEIVED_EXCEPTION for another exception.
        """
        data = await self.ask_bytes(address, method, request)
        try:
            return parse(kind, data)
        except MalformedRpc as error:
            raise BadAnswer(str(address), str(error)) from None

    async def ask_bytes(self, address: Address, method: Method, request: Message) -> bytes:
        """The same, but the answer as it came."""
        options = self.client_options
        try:
            return await self.service.call(
                address,
                method,
                request.SerializeToString(),
                options.timeout,
                connect_timeout=options.connect_timeout,
                tls=options.tls,
            )
        except RemoteFailure as failure:
            error = StandbyMaster if failure.standby else TubeError
            raise error(Code.RECEIVED_EXCEPTION, str(failure), str(address)) from None


class Membership(Member):
    """What a consumer is besides: a member of a group, with rules."""

    def __init__(
        self, service: TubeService, group: str, topics: Topics, options: TubeConsumerOptions
    ) -> None:
        """Raises ClientError for names that none may have."""
        super().__init__(service, options)
        try:
            self.group = check_group(group)
        except IllegalName as error:
            raise ClientError(str(error)) from None
        self.subscription = Subscription(topics)
        self.options = options
        self.flow = GroupFlow()


def accepted(success: bool, answer: Refusable, address: Address) -> None:
    """Raises the error that an answer is, unless it is a success."""
    if not success:
        raise for_code(answer.errCode, answer.errMsg, str(address))
