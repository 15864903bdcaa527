"""Accepting: how an asyncio server begins, and ends without leaving a connection or a port open.

The loop takes a connection from the kernel and opens it in a task of its own. A task that begins
behind `Server.close` fails in asyncio before the connection has an owner (an assertion of
`Server._attach`, told to nobody): it would stay open, unread, until the garbage collector finds it,
and its peer would wait for that. So no more connections are taken at once, and the server is closed
behind the first steps of those tasks.
"""

import asyncio


async def start_accepting(server: asyncio.Server) -> None:
    """Take connections at a port that is bound. Of who is cancelled here no port is left.

    asyncio begins, and waits for one turn of the loop then: whoever is cancelled in it has no
    server yet to close.
    """
    try:
        await server.start_serving()
    except BaseException:
        stop_accepting(server)
        raise


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
