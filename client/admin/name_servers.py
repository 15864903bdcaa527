"""Administrative calls to name servers: the key-value store, settings, write permission."""

from __future__ import annotations  # bodies and headers are loaded only when a call needs them

from collections.abc import Mapping

from mq.client.admin.base import AdminBase, parse_config, read
from mq.protocol import bodies, headers
from mq.protocol.codes import RequestCode, ResponseCode

_FOUND_OR_NOT = frozenset((int(ResponseCode.SUCCESS), int(ResponseCode.QUERY_NOT_FOUND)))
ORDER_TOPICS = "ORDER_TOPIC_CONFIG"  # the namespace of ordered topics (NamesrvUtil)


class NameServerAdmin(AdminBase):
    """Name servers. They do not communicate: a change must be made at each of them."""

    async def put_kv(self, namespace: str, key: str, value: str) -> None:
        """Set a key at every name server."""
        for address in await self.session.find_name_servers():
            await self.put_kv_at(address, namespace, key, value)

    async def put_kv_at(self, address: str, namespace: str, key: str, value: str) -> None:
        """Set a key at the name server at `address`."""
        header = headers.PutKVConfigRequestHeader(namespace=namespace, key=key, value=value)
        await self._ask(address, header)

    async def delete_kv(self, namespace: str, key: str) -> None:
        """Delete a key at every name server."""
        for address in await self.session.find_name_servers():
            await self.delete_kv_at(address, namespace, key)

    async def delete_kv_at(self, address: str, namespace: str, key: str) -> None:
        """Delete a key at the name server at `address`; a missing key is not an error."""
        header = headers.DeleteKVConfigRequestHeader(namespace=namespace, key=key)
        await self._ask(address, header)

    async def get_kv(self, address: str, namespace: str, key: str) -> str | None:
        """Return the value of a key at the name server at `address`; None if it has none."""
        header = headers.GetKVConfigRequestHeader(namespace=namespace, key=key)
        response = await self._ask(address, header, accept=_FOUND_OR_NOT)
        if response.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return read(headers.GetKVConfigResponseHeader.decode, response.fields, address).value

    async def kv_list(self, address: str, namespace: str) -> dict[str, str]:
        """Return the keys of a namespace at the name server at `address`; empty if it has none."""
        header = headers.GetKVListByNamespaceRequestHeader(namespace=namespace)
        response = await self._ask(address, header, accept=_FOUND_OR_NOT)
        if response.code == ResponseCode.QUERY_NOT_FOUND:
            return {}
        return read(bodies.KVTable.decode, response.body, address).table

    async def put_order_config(self, topic: str, brokers: Mapping[str, int]) -> None:
        """Make `topic` ordered: its queues per broker stay fixed, even while a broker is down."""
        value = ";".join(f"{name}:{count}" for name, count in brokers.items())
        await self.put_kv(ORDER_TOPICS, topic, value)

    async def name_server_config(self, address: str) -> dict[str, str]:
        """Return the settings of the name server at `address`."""
        response = await self._ask(address, RequestCode.GET_NAMESRV_CONFIG)
        return parse_config(response.body)

    async def update_name_server_config(self, address: str, changes: Mapping[str, str]) -> str:
        """Change settings of the name server at `address`; returns its remark about them, or "".

        Raises ValueError for a line break, and SettingRefused.
        """
        return await self._update_config(address, RequestCode.UPDATE_NAMESRV_CONFIG, changes)

    async def wipe_write_permission(self, address: str, broker_name: str) -> int:
        """Remove a broker from the routes for producers; returns the number of affected topics."""
        header = headers.WipeWritePermOfBrokerRequestHeader(broker_name=broker_name)
        response = await self._ask(address, header)
        answer = read(headers.WipeWritePermOfBrokerResponseHeader.decode, response.fields, address)
        return answer.wipe_topic_count

    async def add_write_permission(self, address: str, broker_name: str) -> int:
        """Restore a broker in the routes for producers; returns the number of affected topics."""
        header = headers.AddWritePermOfBrokerRequestHeader(broker_name=broker_name)
        response = await self._ask(address, header)
        answer = read(headers.AddWritePermOfBrokerResponseHeader.decode, response.fields, address)
        return answer.add_topic_count
