"""A proxy to a daemon that can be blocked: it then accepts data and forwards none."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Gate:
    """A port that forwards to `target`. A connection that was blocked stays blocked."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self.blocked = False
        self.connections = 0
        self.address = ""
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            there_reader, there_writer = await asyncio.open_connection(*self._target)
            try:
                await asyncio.gather(
                    self._pump(reader, there_writer), self._pump(there_reader, writer)
                )
            finally:
                there_writer.close()
        except (asyncio.CancelledError, OSError):
            pass
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            if self.blocked:
                # stays blocked, even when new connections get through again
                await asyncio.Event().wait()
            sink.write(data)
            await sink.drain()
        sink.close()


@asynccontextmanager
async def gate(target: str) -> AsyncIterator[Gate]:
    """Run a gate to `target`, "host:port", until the block ends."""
    made = Gate(target)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()
