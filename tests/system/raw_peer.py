"""A connection that sends any bytes."""

import socket
import struct
from dataclasses import dataclass
from typing import Any

import orjson

TOPIC = "Plain"
SEND = {
    **{"a": "group", "b": TOPIC, "c": "TBW102", "d": "4", "e": "0", "f": "0"},
    **{"g": "1700000000000", "h": "0", "i": "", "j": "0", "k": "false", "m": "false"},
}
PULL = {
    **{"consumerGroup": "group", "topic": TOPIC, "queueId": "0", "queueOffset": "0"},
    **{"maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0"},
    **{"subscription": "*", "subVersion": "0"},
}
CREATE = {
    **{"topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4"},
    **{"perm": "6", "topicFilterType": "SINGLE_TAG", "order": "false"},
}
PATIENCE = 60.0


def frame(header: bytes, body: bytes = b"", serialization: int = 0) -> bytes:
    length = 4 + len(header) + len(body)
    return struct.pack(">iI", length, serialization << 24 | len(header)) + header + body


def request(code: int, fields: dict[str, Any], body: bytes = b"", opaque: int = 7) -> bytes:
    header = {"code": code, "extFields": fields, "flag": 0, "language": "JAVA", "opaque": opaque}
    return frame(orjson.dumps({**header, "version": 409}), body)


@dataclass(frozen=True)
class Reply:
    code: int
    opaque: int
    remark: str
    fields: dict[str, str]
    body: bytes


class RawPeer:
    """One connection, byte by byte."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), PATIENCE)

    def __enter__(self) -> "RawPeer":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass  # already closed by the daemon: the next read shows that

    def receive(self) -> Reply | None:
        """The next reply; None when the daemon has closed the connection."""
        try:
            head = self._exactly(8)
            length, word = struct.unpack(">iI", head)
            rest = self._exactly(length - 4)
        except (EOFError, ConnectionResetError):
            return None
        header = orjson.loads(rest[: word & 0xFFFFFF])
        body = rest[word & 0xFFFFFF :]
        texts = (header.get("remark") or "", header.get("extFields") or {})
        return Reply(header["code"], header["opaque"], *texts, body)

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise EOFError
            data += more
        return data

    def ask(self, code: int, fields: dict[str, Any], body: bytes = b"") -> Reply:
        self.send(request(code, fields, body))
        reply = self.receive()
        assert reply is not None, "the daemon closed the connection"
        return reply
