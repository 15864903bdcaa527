"""Halves in batches: how they are sent, found and ended."""

from mq.protocol.batch import encode_batch
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.command import Command
from mq.protocol.headers.transaction import pack_halves
from mq.protocol.message import Message
from mq.protocol.message_id import decode_offset_id
from tests.daemons.broker.running import now
from tests.daemons.broker.transactions.producers import COMMIT, GROUP, TOPIC, TransactionPeer

Place = tuple[int, int]  # of a half: in the log, in its queue


def message(body: bytes, **properties: str) -> Message:
    made = Message(TOPIC, body)
    made.system |= {"UNIQ_KEY": body.decode(), **properties}
    return made


async def send(
    peer: TransactionPeer,
    *messages: Message,
    common: str = f"TRAN_MSG\x01true\x02PGROUP\x01{GROUP}",
    topic: str = TOPIC,
) -> Command:
    header = {"a": GROUP, "b": topic, "c": "TBW102", "d": "4", "e": "2", "f": "4", "g": str(now())}
    header |= {"h": "0", "i": common, "j": "0", "k": "false", "m": "true"}
    command = Command(RequestCode.SEND_BATCH_MESSAGE, header, encode_batch(messages))
    return await peer.session.invoke(peer.address, command)


async def prepare(peer: TransactionPeer, *bodies: bytes) -> list[Place]:
    reply = await send(peer, *(message(body) for body in bodies))
    assert reply.code == ResponseCode.SUCCESS, reply
    return places_of(reply)


def places_of(reply: Command) -> list[Place]:
    """The places of the halves of a batch."""
    first = int(reply.fields["queueOffset"])
    ids = reply.fields["msgId"].split(",")
    return [(decode_offset_id(each).offset, first + n) for n, each in enumerate(ids)]


async def end(peer: TransactionPeer, places: list[Place], how: int = COMMIT) -> Command:
    (physical, offset), *more = places
    header = {"producerGroup": GROUP, "tranStateTableOffset": str(offset), "msgId": "id"}
    header |= {"commitLogOffset": str(physical), "commitOrRollback": str(how)}
    command = Command(RequestCode.END_TRANSACTION, header, pack_halves(more))
    return await peer.session.invoke(peer.address, command, 5)
