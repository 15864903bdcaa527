"""Lists connected clients."""

from collections.abc import Iterable

from mq.daemons.broker.clients.registry import Client, Consumers, Producers
from mq.daemons.channel import Channel
from mq.daemons.dispatch import Refused
from mq.daemons.request_codes import serves
from mq.protocol.bodies import (
    Connection,
    ConsumerConnection,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
)
from mq.protocol.codes import LanguageCode, RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.headers.group import (
    GetConsumerConnectionListRequestHeader,
    GetProducerConnectionListRequestHeader,
)


class ConnectionHandlers:
    """Lists producers and consumers."""

    def __init__(self, consumers: Consumers, producers: Producers) -> None:
        self._consumers = consumers
        self._producers = producers

    @serves(RequestCode.GET_CONSUMER_CONNECTION_LIST)
    def consumer_connections(self, command: Command, channel: Channel) -> Command:
        """The members of a consumer group and its subscriptions."""
        header = command.read_header(GetConsumerConnectionListRequestHeader)
        group = self._consumers.groups.get(header.consumer_group)
        if group is None:
            raise Refused(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"the consumer group[{header.consumer_group}] not online",
            )
        body = ConsumerConnection(
            connection_set=_connections(group.clients.values()),
            subscription_table=group.subscriptions,
            consume_type=group.consume_type,
            message_model=group.message_model,
            consume_from_where=group.consume_from_where,
        )
        return command.reply(body=body.encode())

    @serves(RequestCode.GET_PRODUCER_CONNECTION_LIST)
    def producer_connections(self, command: Command, channel: Channel) -> Command:
        """The members of a producer group."""
        header = command.read_header(GetProducerConnectionListRequestHeader)
        clients = self._producers.groups.get(header.producer_group)
        if clients is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"the producer group[{header.producer_group}] not exist"
            )
        body = ProducerConnection(connection_set=_connections(clients.values()))
        return command.reply(body=body.encode())

    @serves(RequestCode.GET_ALL_PRODUCER_INFO)
    def all_producers(self, command: Command, channel: Channel) -> Command:
        """All producers by group."""
        table: dict[str, list[ProducerInfo]] = {}
        for group, client in self._producers.members():
            table.setdefault(group, []).append(
                ProducerInfo(
                    client_id=client.client_id,
                    # Java writes the text of a socket address, with a leading slash.
                    remote_ip=f"/{client.channel.remote}",
                    language=_language(client.language),
                    version=client.version,
                    last_update_timestamp=client.last_seen_ms(),
                )
            )
        return command.reply(body=ProducerTableInfo(data=table).encode())


def _connections(clients: Iterable[Client]) -> list[Connection]:
    return [
        Connection(
            client_id=client.client_id,
            client_addr=client.channel.remote,
            language=_language(client.language),
            version=client.version,
        )
        for client in clients
    ]


def _language(number: int) -> LanguageCode:
    try:
        return LanguageCode(number)
    except ValueError:
        return LanguageCode.OTHER
