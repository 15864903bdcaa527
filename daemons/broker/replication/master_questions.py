"""What a slave asks its master as a tool would: over the port of requests."""

from types import TracebackType
from typing import Self

from mq.client.errors import BadAnswer
from mq.client.session import Session
from mq.daemons.broker.config import BrokerSettings
from mq.daemons.broker.store.replica import NotReplicated
from mq.protocol.bodies import KVTable
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.errors import ProtocolError
from mq.protocol.headers.query import ViewMessageRequestHeader

TIMEOUT = 5.0


class MasterQuestions:
    """Asks the broker at an address. An async context manager. Both calls raise MQError, and
    NotReplicated where it may not be asked."""

    def __init__(self, address: str, settings: BrokerSettings) -> None:
        self._address = address
        self._session = Session(address, tls=settings.name_server_tls(), timeout=TIMEOUT)
        self._session.credentials = settings.name_server_key()

    async def __aenter__(self) -> Self:
        await self._session.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._session.close()

    async def record_at(self, physical: int) -> bytes | None:
        """The record that begins at an offset of its log, None if none does."""
        header = ViewMessageRequestHeader(offset=physical)
        request = Command(RequestCode.VIEW_MESSAGE_BY_ID, header.encode())
        reply = await self._session.invoke(self._address, request, TIMEOUT)
        if reply.code == ResponseCode.NO_PERMISSION:
            raise NotReplicated(
                f"{self._address} does not let this slave see messages ({reply.remark}): the "
                f"account of namesrvAclFile needs admin=true there"
            )
        return bytes(reply.body) if reply.code == ResponseCode.SUCCESS else None

    async def bounds(self) -> tuple[int, int]:
        """Where its log begins and ends."""
        request = Command(RequestCode.GET_BROKER_RUNTIME_INFO)
        reply = await self._session.invoke(self._address, request, TIMEOUT)
        if reply.code != ResponseCode.SUCCESS:
            raise NotReplicated(
                f"{self._address} does not say what its log has: {reply.code} {reply.remark}"
            )
        try:
            table = KVTable.decode(reply.body).table
            return int(table["commitLogMinOffset"]), int(table["commitLogMaxOffset"])
        except (ProtocolError, KeyError, ValueError) as error:
            raise BadAnswer(self._address, f"what its log has: {error}") from None
