"""Record the vectors again: `python -m tests.vectors.capture`. Needs a JDK and Maven; see
README.md.

Two recording proxies stand between real Java programs: one in front of the name server, one in
front of the broker. Frames are written unchanged, one per line.
"""

import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Self

from tests.interop import peers
from tests.interop.jvm import jars
from tests.interop.ports import free_port

HERE = Path(__file__).parent
RELEASES = {"4.9": ("4.9.7", "4.9.8"), "5.5": ("5.5.0", "5.5.0")}  # folder: (server, client)

_PER_KIND = 2  # frames kept per direction, request code and response code
_LARGEST = 16 * 1024
# Answers with paths and figures of the machine: settings, runtime info.
_PRIVATE_CODES = {26, 28, 319}
_RESPONSE = 1


class RecordingProxy:
    """Forwards bytes in both directions, and keeps the first frames of each kind.

    A peer gets the address of the broker from routes. To lead it to the proxy, `rewrite` replaces
    addresses by others of the same length after a frame was recorded.
    """

    def __init__(self, target: tuple[str, int], port: int, rewrite: dict[bytes, bytes]) -> None:
        self.target = target
        self.rewrite = rewrite
        self.lines: list[str] = []
        self._seen: dict[tuple[object, ...], int] = {}
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", port))

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return  # closed: the recording is over
            far = socket.create_connection(self.target)
            asked: dict[tuple[str, int], int] = {}  # (requester, opaque): request code
            for sign, source, sink in ((">", near, far), ("<", far, near)):
                arguments = (sign, source, sink, asked)
                threading.Thread(target=self._pump, args=arguments, daemon=True).start()

    def _pump(
        self,
        sign: str,
        source: socket.socket,
        sink: socket.socket,
        asked: dict[tuple[str, int], int],
    ) -> None:
        stream = source.makefile("rb")
        try:
            while len(head := stream.read(4)) == 4:
                frame = head + stream.read(struct.unpack(">i", head)[0])
                self._record(sign, frame, asked)
                for old, new in self.rewrite.items():
                    frame = frame.replace(old, new)
                sink.sendall(frame)
        except OSError:
            pass  # one side is closed; close the other
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def _record(self, sign: str, frame: bytes, asked: dict[tuple[str, int], int]) -> None:
        code, opaque, flag, sys_flag = read_header(frame)
        if flag & _RESPONSE:
            request = asked.pop(("<" if sign == ">" else ">", opaque), None)
            kind: tuple[object, ...] = (sign, request, code, frame[4])
        else:
            request = asked[sign, opaque] = code
            kind = (sign, code, frame[4], sys_flag)
        if request in _PRIVATE_CODES or len(frame) > _LARGEST or b"/tmp" in frame:
            return
        with self._lock:
            self._seen[kind] = self._seen.get(kind, 0) + 1
            if self._seen[kind] <= _PER_KIND:
                name = f"answer {code} to {request}" if flag & _RESPONSE else f"request {code}"
                self.lines += [f"# {name}", f"{sign} {frame.hex()}"]


def read_header(frame: bytes) -> tuple[int, int, int, str]:
    """Code, opaque, flag and the sysFlag of a send, read without the code under test."""
    length = int.from_bytes(frame[5:8], "big")
    if frame[4] == 0:
        header = json.loads(frame[8 : 8 + length])
        sys_flag = (header.get("extFields") or {}).get("f", "")
        return header["code"], header["opaque"], header["flag"], sys_flag
    code, _, _, opaque, flag = struct.unpack_from(">hbhii", frame, 8)
    return code, opaque, flag, ""


def record_traffic(folder: str, server: str, client: str, home: Path) -> None:
    """Start a Java cluster with proxies, let clients and mqadmin work, and keep the frames."""
    namesrv_port, broker_port, front_port = (free_port() for _ in range(3))
    direct, front = (f"127.0.0.1:{port}".encode() for port in (broker_port, front_port))
    config = {"brokerName": "broker-a", "brokerClusterName": "DefaultCluster"}
    with (
        peers.JavaNameServer(server, home) as name_server,
        RecordingProxy(("127.0.0.1", name_server.port), namesrv_port, {direct: front}) as names,
        RecordingProxy(("127.0.0.1", broker_port), front_port, {}) as broker_front,
        peers.JavaBroker(server, home, f"127.0.0.1:{namesrv_port}", config, port=broker_port),
    ):
        _exercise(server, client, f"127.0.0.1:{namesrv_port}", front.decode(), home)
        for name, proxy in (("name-server", names), ("broker", broker_front)):
            path = HERE / folder / f"{name}.txt"
            path.write_text("\n".join(proxy.lines) + "\n")


def _exercise(server: str, client: str, namesrv: str, broker: str, home: Path) -> None:
    def admin(*arguments: str) -> str:
        result = peers.mqadmin(server, *arguments, "-n", namesrv, tmp=home / "admin")
        return result.stdout

    topic, group = "VectorTopic", "vector_group"
    admin("updateTopic", "-t", topic, "-b", broker, "-r", "4", "-w", "4")
    admin("updateSubGroup", "-g", group, "-b", broker)
    sent = peers.run_java(client, "Produce.java", namesrv, topic, "6").stdout
    peers.run_java(client, "Produce.java", namesrv, topic, "3", "batch")
    peers.run_java(client, "Produce.java", namesrv, topic, "1", "sync", "5000", "tag-zlib")
    peers.run_java(client, "Produce.java", namesrv, topic, "1", "oneway")
    os.environ["ROCKETMQ_SERIALIZE_TYPE"] = "ROCKETMQ"
    peers.run_java(client, "Produce.java", namesrv, topic, "2")
    del os.environ["ROCKETMQ_SERIALIZE_TYPE"]
    consume = ("Consume.java", namesrv, group, topic, "*")
    with peers.JavaProgram(client, *consume, tmp=home) as consumer:
        consumer.wait_for_line("GOT ", count=8)
        admin("consumerConnection", "-g", group)
        admin("consumerStatus", "-g", group)
        admin("resetOffsetByTime", "-g", group, "-t", topic, "-s", "0")
    failing = (*consume, "fail-once")
    with peers.JavaProgram(client, *failing, tmp=home) as consumer:
        peers.run_java(client, "Produce.java", namesrv, topic, "1")
        consumer.wait_for_line("GOT ", count=1)
    with peers.JavaProgram(client, *consume, "orderly", tmp=home) as consumer:
        peers.run_java(client, "Produce.java", namesrv, topic, "1")
        consumer.wait_for_line("GOT ", count=1)
    message = sent.split()
    admin("queryMsgById", "-t", topic, "-i", message[4])
    admin("queryMsgByKey", "-t", topic, "-k", "key-1")
    admin("queryMsgByUniqueKey", "-t", topic, "-i", message[3])
    for command in (
        "topicList",
        "clusterList",
        f"topicRoute -t {topic}",
        f"topicStatus -t {topic}",
        f"brokerStatus -b {broker}",
        f"consumerProgress -g {group}",
        f"brokerConsumeStats -b {broker}",
        f"queryCq -t {topic} -q 0 -i 0 -c 5 -b {broker}",
        f"statsAll -t {topic}",
        "updateKvConfig -s space -k name -v value",
        "deleteKvConfig -s space -k name",
        "wipeWritePerm -b broker-a",
        "addWritePerm -b broker-a",
        f"deleteSubGroup -g {group} -b {broker}",
        f"deleteTopic -t {topic} -c DefaultCluster",
    ):
        admin(*command.split())


def dump_declarations(folder: str, release: str) -> None:
    """Let Java list the fields of its headers, and write each of its bodies as JSON."""
    for program, arguments in (("DumpHeaders", []), ("DumpBodies", body_names())):
        result = subprocess.run(
            [
                *("java", "--add-opens", "java.base/java.util=ALL-UNNAMED"),
                *("-cp", f"{jars(release)}/*", str(HERE / "java" / f"{program}.java")),
                *arguments,
            ],
            capture_output=True,
            text=True,
            check=True,
        )
        lines = [line for line in result.stdout.splitlines() if "\t" in line]
        name = program.removeprefix("Dump").lower()
        (HERE / folder / f"{name}.tsv").write_text("\n".join(lines) + "\n")


def body_names() -> list[str]:
    """The simple names of the declared bodies."""
    from mq.protocol.bodies import SUBJECTS

    return [name for names in SUBJECTS.values() for name in names]


def main() -> None:
    for folder in sys.argv[1:] or RELEASES:
        server, client = RELEASES[folder]
        (HERE / folder).mkdir(exist_ok=True)
        dump_declarations(folder, "client-4.9.8" if folder == "4.9" else "server-5.5.0")
        home = Path(tempfile.mkdtemp(prefix="vectors-"))
        try:
            record_traffic(folder, server, client, home)
        finally:
            shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
