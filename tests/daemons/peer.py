"""A scripted peer: one real connection that sends and receives whole commands, or raw bytes."""

import asyncio
import contextlib
import struct
from collections.abc import Mapping
from typing import Self

from mq.protocol.codes import LanguageCode
from mq.protocol.command import ONE_WAY, Command
from mq.protocol.frame import decode, encode
from mq.protocol.headers.schema import Header
from mq.protocol.versions import CURRENT_VERSION

# Timeout of a test that waits for a daemon in the same process.
PATIENCE = 30.0


class Peer:
    """`async with Peer(port) as peer: reply = await peer.ask(code, header, body)`"""

    def __init__(self, port: int) -> None:
        self._port = port
        self._opaque = 0
        self.pushed: list[Command] = []  # requests of the daemon that arrived meanwhile

    async def __aenter__(self) -> Self:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):  # the daemon has closed it
            await self.writer.wait_closed()

    @property
    def address(self) -> str:
        host, port = self.writer.get_extra_info("sockname")[:2]
        return f"{host}:{port}"

    async def ask(
        self,
        code: int,
        fields: Header | Mapping[str, str] | None = None,
        body: bytes = b"",
        *,
        version: int = CURRENT_VERSION,
        language: int = LanguageCode.JAVA,
    ) -> Command:
        """Send a request and wait for its response."""
        self._opaque += 1
        request = Command(
            code,
            fields.encode() if isinstance(fields, Header) else fields,
            body,
            opaque=self._opaque,
            version=version,
            language=language,
        )
        self.writer.write(encode(request))
        while True:
            command = await self.receive()
            if command.is_response and command.opaque == request.opaque:
                return command
            self.pushed.append(command)

    def tell(self, code: int, fields: Header, body: bytes = b"") -> None:
        """Send a one-way request."""
        self.writer.write(encode(Command(code, fields.encode(), body, flag=ONE_WAY)))

    def answer(self, request: Command, code: int = 0, body: bytes = b"") -> None:
        """Reply to a request of the daemon."""
        self.writer.write(encode(request.reply(code, body=body)))

    async def receive(self) -> Command:
        """The next command, whatever it is."""
        async with asyncio.timeout(PATIENCE):
            (length,) = struct.unpack(">i", await self.reader.readexactly(4))
            return decode(await self.reader.readexactly(length))

    async def pushed_command(self) -> Command:
        """The next request of the daemon."""
        return self.pushed.pop(0) if self.pushed else await self.receive()

    async def closed_by_daemon(self) -> None:
        """Wait until the daemon closes the connection, whatever it sends before."""
        async with asyncio.timeout(PATIENCE):
            await self.reader.read()
