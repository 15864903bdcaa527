"""A client that has sent a broker a heartbeat, and does nothing more: for commands that list it."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from mq.daemons.standalone import Standalone
from mq.protocol.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerData,
    SubscriptionData,
)
from mq.protocol.codes import RequestCode
from mq.protocol.command import Command
from mq.protocol.command_reader import CommandReader
from mq.protocol.frame import encode


class Member:
    """The client's connection."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._connection = CommandReader()
        self._arrived: list[Command] = []

    def send(self, command: Command) -> None:
        self._link.sendall(encode(command))

    def answer(self) -> Command:
        """The next response."""
        return self._next(response=True)

    def pushed(self) -> Command:
        """Return the broker's next request to the client, except news of its group."""
        while True:
            command = self._next(response=False)
            if command.code != RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
                return command

    def _next(self, *, response: bool) -> Command:
        while True:
            for command in self._arrived:
                if command.is_response == response:
                    self._arrived.remove(command)
                    return command
            data = self._link.recv(65536)
            assert data, "the broker closed the connection"
            self._arrived += self._connection.receive(data)


@contextmanager
def connected(
    standalone: Standalone, *, group: str, topic: str | None = None, client_id: str = "client@1"
) -> Iterator[Member]:
    """A consumer of `topic`, or a producer without one, until the block ends."""
    beat = HeartbeatData(client_id=client_id)
    if topic is None:
        beat.producer_data_set = [ProducerData(group_name=group)]
    else:
        beat.consumer_data_set = [
            ConsumerData(
                group_name=group,
                consume_type=ConsumeType.CONSUME_PASSIVELY,
                message_model=MessageModel.CLUSTERING,
                consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
                subscription_data_set=[SubscriptionData(topic=topic, sub_string="*")],
            )
        ]
    host, _, port = standalone.broker.address.rpartition(":")
    with socket.create_connection((host, int(port)), 10) as link:
        member = Member(link)
        member.send(Command(RequestCode.HEART_BEAT, None, beat.encode(), opaque=1))
        assert member.answer().code == 0
        yield member
