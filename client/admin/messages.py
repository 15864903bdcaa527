"""Administrative calls about single messages."""

from __future__ import annotations  # bodies and headers are loaded when a call needs them

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
    """Find stored messages by where they lie, by key or by id. Times are ms since 1970.

    Without `decompress` bodies are as they are stored.
    """

    async def view_message(
        self, address: str, offset: int, *, decompress: bool = True
    ) -> StoredMessage:
        """The message at a position of the commit log of the broker at `address`.

        Raises NoneThere when no message begins there.
        """
        from mq.protocol.message import decode_record

        response = await self._ask(address, headers.ViewMessageRequestHeader(offset=offset))
        decode = partial(decode_record, decompress=decompress)
        return read(decode, response.body, address)

    async def find_by_offset_id(self, message_id: str, *, decompress: bool = True) -> StoredMessage:
        """The message of an offset id ("host, port, position" in hex), asked of that very host.

        Raises ClientError if it is invalid.
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
        """What the index of the broker at `address` finds for `key`; with `unique`, a unique id.

        The index knows keys by their hash: others with the same hash may be among the messages.
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
        # Who decompresses and reads what is found relies on there being so many. (Of unique ids
        # Java's brokers give as many as they are set to, whatever is asked for.)
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
        """The messages of `topic` that have `key`, of all its brokers, oldest first.

        `max_count` is per broker. Empty when there is none. The error of a broker is raised, or
        appended to `failures`, and then what the others have found is returned.
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
        """The messages of `topic` with that unique id, oldest first.

        More than one where a producer has tried again. `now` (seconds since 1970) helps to tell
        the month that the id was made in, which it does not say; without it all times are searched.
        `failures` as in `find_by_key`.
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
