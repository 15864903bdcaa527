"""SendMessageRequestP2B as bytes: only the message differs between requests, so the rest is encoded
once.

The head contains client and partition, the tail address and token; the tests compare the result
with protobuf's own.
"""

from mq.protocol.tube.messages import AuthorizedInfo, SendMessageRequestP2B
from mq.protocol.tube.rpc import varint

NO_CHECKSUM = -1


def head(client_id: str, topic: str, partition_id: int) -> bytes:
    """Return the start of a client's requests to a partition."""
    return SendMessageRequestP2B(
        clientId=client_id, topicName=topic, partitionId=partition_id
    ).SerializePartialToString()


def tail(address: int, info: AuthorizedInfo) -> bytes:
    """Return the end of requests; ``address`` is this machine's IPv4 address as a signed number."""
    # The fields of a message may be in any order: the address follows type and time.
    return SendMessageRequestP2B(sentAddr=address, authInfo=info).SerializePartialToString()


def request(
    head: bytes,
    payload: bytes,
    flag: int,
    checksum: int,
    message_type: str | None,
    message_time: str | None,
    tail: bytes,
) -> bytes:
    """Return the request that stores a payload; with NO_CHECKSUM the broker does not verify it."""
    length = varint(len(payload))
    checked = varint(checksum & 0xFFFFFFFFFFFFFFFF)
    more = b""
    if message_type is not None:
        raw = message_type.encode()
        more = b"\x42%b%b" % (varint(len(raw)), raw)
    if message_time is not None:
        raw = message_time.encode()
        more += b"\x4a%b%b" % (varint(len(raw)), raw)
    return b"%b\x22%b%b\x28%b\x30%b%b%b" % (
        head,
        length,
        payload,
        varint(flag),
        checked,
        more,
        tail,
    )
