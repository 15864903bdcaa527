"""Accepting: starts and stops an asyncio server without leaving a connection or a port open.

The event loop takes a connection from the kernel and opens it in its own task. A task that starts
after `Server.close` fails in asyncio before the connection has an owner (an assertion of
`Server._attach`, which is not reported): the connection would stay open, unread, until the garbage
collector finds it, while its peer waits. So the server stops taking connections at once, and is
closed after the first steps of those tasks.
"""

import asyncio
import errno
import os
import ssl
from collections.abc import Awaitable, Callable

from mq.protocol.host import address_text

_PORTS_TRIED = 10


async def bind(
    accept: Callable[[], asyncio.Protocol],
    host: str,
    port: int,
    *,
    backlog: int = 100,
    setting: str = "",
    tls: ssl.SSLContext | None = None,
    handshake_seconds: float | None = None,
) -> asyncio.Server:
    """Bind a port, 0 for any free one, without accepting yet: `start_accepting` does that.

    A host with several addresses, such as "" for all of IPv4 and IPv6, has the same port at each.

    ``accept`` makes the protocol of a connection; with ``tls`` it is called after the handshake.
    Raises OSError naming the address, and the ``setting`` that contains it if a daemon has several.
    """

    async def listen(port: int) -> asyncio.Server:
        return await asyncio.get_running_loop().create_server(
            accept,
            host,
            port,
            backlog=backlog,
            ssl=tls,
            ssl_handshake_timeout=handshake_seconds,
            start_serving=False,
        )

    try:
        return await (listen(port) if port else _at_one_port(listen))
    except OSError as error:
        address = address_text((host, port))
        raise _named(error, f"{address} ({setting})" if setting else address) from None


async def _at_one_port(listen: Callable[[int], Awaitable[asyncio.Server]]) -> asyncio.Server:
    """Bind any free port. The event loop would choose a different one for each address."""
    for left in reversed(range(_PORTS_TRIED)):
        server = await listen(0)
        if len({sock.getsockname()[1] for sock in server.sockets}) == 1:
            return server
        port = bound_port(server)
        server.close()
        await asyncio.sleep(0)  # uvloop releases the port then
        try:
            return await listen(port)
        except OSError as error:  # another process has it at another address, or was faster
            if error.errno != errno.EADDRINUSE or not left:
                raise
    raise AssertionError("the last try returns or raises")


def bound_port(server: asyncio.Server) -> int:
    """The bound port, also if 0 was requested."""
    port: int = server.sockets[0].getsockname()[1]
    return port


async def start_accepting(server: asyncio.Server) -> None:
    """Accept connections at a bound port. If the call is cancelled, the port is closed.

    asyncio starts serving and then waits for one turn of the event loop; a caller cancelled in it
    has no server to close yet. Raises OSError naming the address: another process that had bound it
    may be first.
    """
    addresses = [sock.getsockname()[:2] for sock in server.sockets]
    try:
        await server.start_serving()
        _check_listens(server)
    except OSError as error:
        stop_accepting(server)
        raise _named(error, address_text(addresses[0])) from None
    except BaseException:
        stop_accepting(server)
        raise


def _check_listens(server: asyncio.Server) -> None:
    """Raises OSError if uvloop cannot listen: it closes that socket without an error."""
    if any(sock.fileno() < 0 for sock in server.sockets):
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def stop_accepting(server: asyncio.Server) -> None:
    """Accept no new connections; those already taken are opened. Idempotent.

    The port is free one turn of the event loop later: await ``asyncio.sleep(0)`` if that matters.
    """
    loop = asyncio.get_running_loop()
    if not isinstance(loop, asyncio.SelectorEventLoop):  # uvloop opens each at once
        server.close()
        return
    for sock in server.sockets:
        loop.remove_reader(sock)
    loop.call_soon(server.close)


def _named(error: OSError, address: str) -> OSError:
    """Add the address and the reason to the error."""
    why = str(error.strerror or error)
    if error.errno == errno.EADDRINUSE:  # the event loop's own text repeats the address
        why = "another process does already"
    return OSError(error.errno, f"cannot listen on {address}: {why}")
