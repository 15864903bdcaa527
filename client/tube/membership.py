"""The identity of a client at masters and brokers, and its requests."""

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

VERSION = "1.0.0-mq"  # the last part of client ids, where the original has its release

_CHANCES = 2**31

Topics = Mapping[str, Iterable[str] | None] | Iterable[str]


class Refusable(Protocol):
    """An answer with a result code."""

    @property
    def errCode(self) -> int: ...

    @property
    def errMsg(self) -> str: ...


class Subscription:
    """Topics, and the wanted types of messages of some of them."""

    def __init__(self, topics: Topics) -> None:
        """Raises ClientError if there is no topic, and for invalid names and filter items."""
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
        """Return the wanted types of a topic; None for all."""
        return self._wanted.get(topic)

    def filter_items(self, topic: str) -> list[str]:
        """Return the same as text, in order; empty for all."""
        return sorted(item.decode() for item in self.wanted(topic) or ())

    @property
    def conditions(self) -> list[str]:
        """The topics with filters, in the format for masters."""
        return [
            str(TopicCondition(topic, tuple(items)))
            for topic in self.topics
            if (items := self.filter_items(topic))
        ]


class Member:
    """A client's names and tokens. `client_id` is set once it has joined the service."""

    def __init__(self, service: TubeService, options: TubeClientOptions) -> None:
        self.service = service
        self.client_options = options
        self.identity = Identity(options.credentials)
        self.host = "127.0.0.1"
        self.client_id = ""

    def name(self, index: int, towards: Address, first: str, kind: str = "") -> None:
        """Create the client id from the number that the service assigned.

        Its format is the C++ client's: `first`, then `_IPv4-pid-startMillis-clientIndex-version`,
        with an added random number, as in Java: clients with separate services may start in the
        same millisecond, and in containers all other parts may be equal. Masters and brokers would
        treat two members with the same id as one, and each would confirm the other's messages. The
        colons of an IPv6 address become dots in the id, because they are delimiters in the texts of
        masters.
        """
        self.host = self.service.own_host(towards).replace(":", ".")
        drawn = str(random_ids.randrange(_CHANCES))
        parts = (str(os.getpid()), str(clock.milliseconds()), str(index), drawn, kind, VERSION)
        self.client_id = "-".join((f"{first}_{self.host}", *filter(None, parts)))

    async def ask(self, address: Address, method: Method, request: Message, kind: type[M]) -> M:
        """Send a request to a server, and return its answer, decoded as `kind`.

        Raises ConnectError, RequestTimeout, BadAnswer, StandbyMaster for a master that is not
        active, and TubeError with the code RECEIVED_EXCEPTION for another exception.
        """
        data = await self.ask_bytes(address, method, request)
        try:
            return parse(kind, data)
        except MalformedRpc as error:
            raise BadAnswer(str(address), str(error)) from None

    async def ask_bytes(self, address: Address, method: Method, request: Message) -> bytes:
        """Do the same, but return the answer as bytes."""
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
    """A consumer's identity: also a member of a group, with rules."""

    def __init__(
        self, service: TubeService, group: str, topics: Topics, options: TubeConsumerOptions
    ) -> None:
        """Raises ClientError for invalid names."""
        super().__init__(service, options)
        try:
            self.group = check_group(group)
        except IllegalName as error:
            raise ClientError(str(error)) from None
        self.subscription = Subscription(topics)
        self.options = options
        self.flow = GroupFlow()


def accepted(success: bool, answer: Refusable, address: Address) -> None:
    """Raise the error in an answer, unless it is a success."""
    if not success:
        raise for_code(answer.errCode, answer.errMsg, str(address))
