"""A log of small files, and a way to leave little room in one."""

from mq.daemons.broker.app import Broker
from mq.daemons.broker.store.layout import END_OF_FILE_ROOM
from tests.daemons.broker.harness import send
from tests.daemons.peer import Peer

SMALL = {"mappedFileSizeCommitLog": str(1 << 16)}
FILLER = "Filler"


async def leave_room(peer: Peer, broker: Broker, size: int) -> None:
    """Fill the log's file until there is room for the given bytes and the blank."""
    log = broker.stores.messages.log
    before = log.position
    await send(peer, FILLER, b"")
    overhead = log.position - before
    room = log.files[-1].end - log.position - END_OF_FILE_ROOM - size
    await send(peer, FILLER, bytes(room - overhead))
    assert log.files[-1].end - log.position == size + END_OF_FILE_ROOM
