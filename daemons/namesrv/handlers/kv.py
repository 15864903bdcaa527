"""Requests about the key-value configuration."""

from collections.abc import Callable

from mq.daemons.channel import Channel
from mq.daemons.config_requests import reply_to_update, update_settings
from mq.daemons.dispatch import Refused
from mq.daemons.namesrv.config import NamesrvSettings
from mq.daemons.namesrv.kv import ORDER_TOPIC_NAMESPACE, KvConfig
from mq.daemons.request_codes import serves
from mq.protocol.bodies import KVTable
from mq.protocol.bodies.route import parse_order_conf
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.headers.kv import (
    DeleteKVConfigRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    PutKVConfigRequestHeader,
)


class ConfigHandlers:
    """Shows and changes the name server's settings."""

    def __init__(self, settings: NamesrvSettings) -> None:
        self._settings = settings

    @serves(RequestCode.UPDATE_NAMESRV_CONFIG)
    def update(self, command: Command, channel: Channel) -> Command:
        """Change settings, all or none; some take effect at the next start."""
        return reply_to_update(command, update_settings(self._settings, command, channel))

    @serves(RequestCode.GET_NAMESRV_CONFIG)
    def get(self, command: Command, channel: Channel) -> Command:
        """All settings as a .properties text."""
        return command.reply(body=self._settings.text().encode())


class KvHandlers:
    """Reads and changes the key-value configuration."""

    def __init__(self, kv: KvConfig) -> None:
        self._kv = kv

    @serves(RequestCode.PUT_KV_CONFIG)
    def put(self, command: Command, channel: Channel) -> Command:
        """Set a value."""
        header = PutKVConfigRequestHeader.decode(command.fields)
        if header.namespace == ORDER_TOPIC_NAMESPACE:
            try:
                parse_order_conf(header.value)
            except ValueError as error:
                raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        _saved(lambda: self._kv.put(header.namespace, header.key, header.value))
        return command.reply()

    @serves(RequestCode.GET_KV_CONFIG)
    def get(self, command: Command, channel: Channel) -> Command:
        """Return a value."""
        header = GetKVConfigRequestHeader.decode(command.fields)
        value = self._kv.get(header.namespace, header.key)
        if value is None:
            raise Refused(
                ResponseCode.QUERY_NOT_FOUND,
                f"No config item, Namespace: {header.namespace} Key: {header.key}",
            )
        return command.reply(fields=GetKVConfigResponseHeader(value=value).encode())

    @serves(RequestCode.DELETE_KV_CONFIG)
    def delete(self, command: Command, channel: Channel) -> Command:
        """Remove a value."""
        header = DeleteKVConfigRequestHeader.decode(command.fields)
        _saved(lambda: self._kv.delete(header.namespace, header.key))
        return command.reply()

    @serves(RequestCode.GET_KVLIST_BY_NAMESPACE)
    def list_namespace(self, command: Command, channel: Channel) -> Command:
        """All values of a namespace."""
        header = GetKVListByNamespaceRequestHeader.decode(command.fields)
        table = self._kv.namespace(header.namespace)
        if table is None:
            raise Refused(
                ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {header.namespace}"
            )
        return command.reply(body=KVTable(table=table).encode())


def _saved(change: Callable[[], None]) -> None:
    try:
        change()
    except OSError as error:
        raise Refused(
            ResponseCode.SYSTEM_ERROR, f"cannot save the KV configuration: {error.strerror}"
        ) from None
