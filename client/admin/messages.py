"""Administrative calls for single messages."""

from __future__ import annotations  # bodies and headers are loaded only when a call needs them

from functools import partial
from typing import TYPE_CHECKING

from mq.client.admin.base import AdminBase, read
from mq.client.errors import ClientError, MQError
from mq.protocol import headers
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.names import UNIQUE_KEY_QUERY

if TYPE_CHECKING:
    from mq.protocol.message import StoredMessage

_END_OF_TIME = 2**63 - 1  # Long.MAX_VALUE: no upper limit
_MAX_PER_BROKER = 32
_FOUND_OR_NOT = frozenset((int(ResponseCode.SUCCESS), int(ResponseCode.QUERY_NOT_FOUND)))


class MessageAdmin(AdminBase):
    """Find stored messages by physical offset, by key or by id. Times are in ms since 1970.

    Without `decompress` bodies are returned as stored.
    """

    async def view_message(
        self, address: str, offset: int, *, decompress: bool = True
    ) -> StoredMessage:
        """Return the message at a physical offset of the broker at `address`.

        Raises NoneThere if no message starts there.
        """
        from mq.protocol.message import decode_record

        response = await self._ask(address, headers.ViewMessageRequestHeader(offset=offset))
        decode = partial(decode_record, decompress=decompress)
        return read(decode, response.body, address)

    async def find_by_offset_id(self, message_id: str, *, decompress: bool = True) -> StoredMessage:
        """Return the message of an offset id (host, port and position in hex), from that host.

        Raises ClientError for an invalid id.
        """
        from mq.protocol.message_id import decode_offset_id

        try:
            place = decode_offset_id(message_id)
        except ValueError as error:
            raise ClientError(str(error)) from None
        host = f"[{place.host}]" if ":" in place.host else place.host
        address = f"{host}:{place.port}"
        return await self.view_message(address, place.offset, decompress=decompress)

    async def query_message(
        self,
        address: str,
        topic: str,
        key: str,
        max_count: int = _MAX_PER_BROKER,
        begin: int = 0,
        end: int = _END_OF_TIME,
        *,
        unique: bool = False,
        decompress: bool = True,
    ) -> list[StoredMessage]:
        """Return the messages that the index of the broker at `address` finds for `key`.

        With `unique`, `key` is a unique id. The index stores hashes of keys: messages with other
        keys of the same hash may be included.
        """
        from mq.protocol.message import decode_records

        header = headers.QueryMessageRequestHeader(
            topic=topic, key=key, max_num=max_count, begin_timestamp=begin, end_timestamp=end
        )
        fields = header.encode()
        if unique:
            fields[UNIQUE_KEY_QUERY] = "true"
        command = Command(RequestCode.QUERY_MESSAGE, fields)
        response = await self.session.call(address, command, self.timeout, accept=_FOUND_OR_NOT)
        if response.code == ResponseCode.QUERY_NOT_FOUND:
            return []
        found = read(partial(decode_records, decompress=decompress), response.body, address)
        # Callers that decompress the messages rely on this limit. (For unique ids Java's brokers
        # return their own configured number, whatever was requested.)
        return found if unique or max_count <= 0 else found[:max_count]

    async def find_by_key(
        self,
        topic: str,
        key: str,
        max_count: int = _MAX_PER_BROKER,
        begin: int = 0,
        end: int = _END_OF_TIME,
        *,
        decompress: bool = True,
        failures: list[MQError] | None = None,
    ) -> list[StoredMessage]:
        """Return the messages of `topic` with `key` from all its brokers, oldest first.

        `max_count` is per broker. An error of a broker is raised, or appended to `failures` if
        given; then the messages of the other brokers are returned.
        """
        found = await self._query_everywhere(
            topic,
            key,
            max_count,
            begin,
            end,
            unique=False,
            decompress=decompress,
            failures=failures,
        )
        return [message for message in found if key in message.keys and message.topic == topic]

    async def find_by_unique_id(
        self,
        topic: str,
        message_id: str,
        *,
        now: float | None = None,
        decompress: bool = True,
        failures: list[MQError] | None = None,
    ) -> list[StoredMessage]:
        """Return the messages of `topic` with that unique id, oldest first.

        There is more than one if a producer has retried. `now` (seconds since 1970) determines the
        month in which the id was created, which the id does not contain; without it all times are
        searched. See `find_by_key` for `failures`.
        """
        begin = 0
        if now is not None:
            from mq.protocol.message_id import unique_id_time

            try:
                begin = int(unique_id_time(message_id, now) * 1000) - 1000
            except ValueError as error:
                raise ClientError(str(error)) from None
        found = await self._query_everywhere(
            topic,
            message_id,
            _MAX_PER_BROKER,
            begin,
            _END_OF_TIME,
            unique=True,
            decompress=decompress,
            failures=failures,
        )
        return [message for message in found if message.message_id == message_id]

    async def _query_everywhere(
        self,
        topic: str,
        key: str,
        max_count: int,
        begin: int,
        end: int,
        *,
        unique: bool,
        decompress: bool,
        failures: list[MQError] | None,
    ) -> list[StoredMessage]:
        async def ask(address: str) -> list[StoredMessage]:
            try:
                return await self.query_message(
                    address, topic, key, max_count, begin, end, unique=unique, decompress=decompress
                )
            except MQError as error:
                if failures is None:
                    raise
                failures.append(error)
                return []

        parts = await self.session.all([ask(address) for address in await self._brokers_of(topic)])
        found = [message for part in parts for message in part]
        found.sort(key=lambda message: message.store_timestamp)
        return found
