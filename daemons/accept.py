"""Accepting: how an asyncio server begins, and ends without leaving a connection or a port open.

The loop takes a connection from the kernel and opens it in a task of its own. A task that begins
behind `Server.close` fails in asyncio before the connection has an owner (an assertion of
`Server._attach`, told to nobody): it would stay open, unread, until the garbage collector finds it,
and its peer would wait for that. So no more connections are taken at once, and the server is closed
behind the first steps of those tasks.
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
    """Take a port, 0 for any that is free, without accepting yet: `start_accepting` does.

    A host of several addresses, as "" for all of IPv4 and IPv6, has the same port at each.

    ``accept`` makes what has a connection, with ``tls`` behind its handshake. Raises OSError naming
    the address, and the ``setting`` that it is of where a daemon has several.
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
    """Any free port: the loop gives each address another one, of which nobody would know."""
    for left in reversed(range(_PORTS_TRIED)):
        server = await listen(0)
        if len({sock.getsockname()[1] for sock in server.sockets}) == 1:
            return server
        port = bound_port(server)
        server.close()
        await asyncio.sleep(0)  # uvloop gives it up then
        try:
            return await listen(port)
        except OSError as error:  # somebody has it at another address, or was faster
            if error.errno != errno.EADDRINUSE or not left:
                raise
    raise AssertionError("the last try returns or raises")


def bound_port(server: asyncio.Server) -> int:
    """The port that a server has, also where 0 was asked for."""
    port: int = server.sockets[0].getsockname()[1]
    return port


async def start_accepting(server: asyncio.Server) -> None:
    """Take connections at a port that is bound. Of who is cancelled here no port is left.

    asyncio begins, and waits for one turn of the loop then: whoever is cancelled in it has no
    server yet to close. Raises OSError naming the address: who else had bound it may be first.
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
    """Raises OSError where uvloop cannot listen: it closes that socket, and says nothing."""
    if any(sock.fileno() < 0 for sock in server.sockets):
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def stop_accepting(server: asyncio.Server) -> None:
    """Take no new connection; those that have been taken are opened. Idempotent.

    The port is free one turn of the loop later: who wants that awaits ``asyncio.sleep(0)``.
    """
    loop = asyncio.get_running_loop()
    if not isinstance(loop, asyncio.SelectorEventLoop):  # uvloop opens each as it takes it
        server.close()
        return
    for sock in server.sockets:
        loop.remove_reader(sock)
    loop.call_soon(server.close)


def _named(error: OSError, address: str) -> OSError:
    """The error with what is listened on, and why it cannot be."""
    why = str(error.strerror or error)
    if error.errno == errno.EADDRINUSE:  # the loop's own text says the address once more
        why = "another process does already"
    return OSError(error.errno, f"cannot listen on {address}: {why}")
