"""Input of broken or hostile peers, on raw sockets, to a real broker and a real name server.

Each bad input gets its defined response or a closed connection; the daemon stays up, serves others
meanwhile, writes nothing outside its folder and at most one line a second about one peer.
"""

import errno
import os
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson
import pytest

from mq.protocol.codes import RequestCode, ResponseCode
from tests.system.daemon import BrokerProcess
from tests.system.raw_peer import (
    CREATE,
    PULL,
    SEND,
    TOPIC,
    RawPeer,
    frame,
    request,
)

MAX_BODY = 65536
MAX_FRAME = 16 * 1024 * 1024


@dataclass(frozen=True)
class Daemon:
    """A tested daemon process."""

    kind: str
    address: str
    pid: int
    folder: Path  # everything that it may write is below
    log: Path

    def assert_serves(self) -> None:
        """Check that it is the same process, and a new connection is served at once."""
        assert Path(f"/proc/{self.pid}").exists()
        begin = time.monotonic()
        with RawPeer(self.address) as peer:
            if self.kind == "broker":
                reply = peer.ask(RequestCode.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": "0"})
            else:
                reply = peer.ask(RequestCode.GET_BROKER_CLUSTER_INFO, {})
            assert reply.code == ResponseCode.SUCCESS
        assert time.monotonic() - begin < 20  # it may be busy, and so may the machine


def _folder(tmp_path_factory: pytest.TempPathFactory, name: str) -> Path:
    """A folder inside its own one, so that only this daemon can write next to it."""
    folder = tmp_path_factory.mktemp(name) / "daemon"
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = _folder(tmp_path_factory, "broker")
    settings = {"maxMessageSize": str(MAX_BODY), "mappedFileSizeCommitLog": str(4 << 20)}
    with BrokerProcess(folder / "store", settings) as process:
        assert process._process is not None
        pid = process._process.pid
        daemon = Daemon("broker", process.address, pid, folder, process.log_path)
        with RawPeer(daemon.address) as peer:
            made = peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, CREATE)
            assert made.code == ResponseCode.SUCCESS, made
        yield daemon


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = _folder(tmp_path_factory, "namesrv")
    log = folder / "namesrv.log"
    settings = {
        "listenPort": "0",
        "bindAddress": "127.0.0.1",
        "kvConfigPath": str(folder / "kvConfig.json"),
        "configStorePath": str(folder / "namesrv.properties"),
    }
    command = [sys.executable, "-m", "mq", "namesrv"]
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + 60
        while (found := re.search(r"(127\.0\.0\.1:\d+)", log.read_text())) is None:
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.01)  # its log is a file: there is no event
        yield Daemon("namesrv", found[1], process.pid, folder, log)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


@pytest.fixture(params=["broker", "name_server"])
def daemon(request: pytest.FixtureRequest) -> Iterator[Daemon]:
    found: Daemon = request.getfixturevalue(request.param)
    yield found
    found.assert_serves()


NOT_FRAMES = {
    "over 16 MiB": struct.pack(">i", MAX_FRAME + 1) + b"x" * 1000,
    "the largest length": struct.pack(">i", 0x7FFFFFFF),
    "a negative length": struct.pack(">i", -1) + b"x" * 100,
    "the most negative length": struct.pack(">i", -(1 << 31)),
    "a length without room for the header's": struct.pack(">i", 3) + b"abc" * 3,
    "broken JSON": frame(b'{"code":10,'),
    "JSON that is not an object": frame(b"[1,2,3]"),
    "JSON nested deeply": frame(b'{"code":' + b"[" * 100_000),
    "a header longer than its frame": struct.pack(">iI", 20, 5000) + b"x" * 16,
    "a code that is text": frame(b'{"code":"ten","flag":0,"opaque":1}'),
    "extFields that are a list": frame(b'{"code":310,"flag":0,"opaque":1,"extFields":[1]}'),
    "an unknown serialization": frame(b'{"code":10}', serialization=9),
    "a broken binary header": frame(b"\x00\x0a\x00\x01\x99", serialization=1),
    "garbage": bytes(range(255, -1, -1)) * 8,
    "an HTTP request": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


@pytest.mark.parametrize("name", NOT_FRAMES)
def test_data_that_is_not_a_command_closes_the_connection(daemon: Daemon, name: str) -> None:
    with RawPeer(daemon.address) as peer:
        peer.send(NOT_FRAMES[name])
        assert peer.receive() is None


def test_half_a_frame_followed_by_a_close_is_dropped(daemon: Daemon) -> None:
    whole = request(RequestCode.GET_BROKER_CLUSTER_INFO, {})
    for cut in (1, 3, 4, 7, 8, 20, len(whole) - 1):
        with RawPeer(daemon.address) as peer:
            peer.send(whole[:cut])
            daemon.assert_serves()
    with RawPeer(daemon.address) as peer:  # in pieces it is an ordinary request
        for byte in whole:
            peer.send(bytes((byte,)))
        assert peer.receive() is not None


def test_an_unknown_code_is_answered_and_the_connection_continues(daemon: Daemon) -> None:
    with RawPeer(daemon.address) as peer:
        for code in (0, 9999, -1, 1 << 40):
            reply = peer.ask(code, {})
            assert (reply.code, reply.opaque) == (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, 7)
            assert reply.remark == f"request type {code} not supported"


WITHOUT_A_FIELD = [
    ("broker", RequestCode.SEND_MESSAGE_V2, SEND, "b"),
    ("broker", RequestCode.SEND_MESSAGE_V2, SEND, "g"),
    ("broker", RequestCode.SEND_BATCH_MESSAGE, SEND, "e"),
    ("broker", RequestCode.PULL_MESSAGE, PULL, "queueOffset"),
    ("broker", RequestCode.LITE_PULL_MESSAGE, PULL, "topic"),
    ("broker", RequestCode.UPDATE_AND_CREATE_TOPIC, CREATE, "perm"),
    ("broker", RequestCode.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": "0"}, "queueId"),
    ("name_server", RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC}, "topic"),
    ("name_server", RequestCode.PUT_KV_CONFIG,
     {"namespace": "n", "key": "k", "value": "v"}, "value"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "code", "fields", "missing"), WITHOUT_A_FIELD)
def test_a_header_without_a_required_field_names_it(
    request: pytest.FixtureRequest, kind: str, code: int, fields: dict[str, str], missing: str
) -> None:
    daemon: Daemon = request.getfixturevalue(kind)
    with RawPeer(daemon.address) as peer:
        reply = peer.ask(code, {k: v for k, v in fields.items() if k != missing}, b"body")
        assert reply.code == ResponseCode.SYSTEM_ERROR
        assert missing in reply.remark
        assert not reply.remark.startswith(("KeyError", "TypeError"))
    daemon.assert_serves()


MALFORMED = [
    (RequestCode.SEND_MESSAGE_V2, SEND, "g", 1.7e308),
    (RequestCode.SEND_MESSAGE_V2, SEND, "g", "9" * 40),
    (RequestCode.SEND_MESSAGE_V2, SEND, "h", str(1 << 31)),
    (RequestCode.SEND_MESSAGE_V2, SEND, "f", "no number"),
    (RequestCode.SEND_MESSAGE_V2, SEND, "e", "0x1"),
    (RequestCode.SEND_BATCH_MESSAGE, SEND, "f", "1.5"),
    (RequestCode.PULL_MESSAGE, PULL, "queueOffset", "many"),
    (RequestCode.PULL_MESSAGE, {**PULL, "sysFlag": "5"}, "commitOffset", str(1 << 63)),
    (RequestCode.PULL_MESSAGE, {**PULL, "queueOffset": "99999"}, "suspendTimeoutMillis", "x"),
    (RequestCode.UPDATE_CONSUMER_OFFSET,
     {"consumerGroup": "g", "topic": TOPIC, "queueId": "0"}, "commitOffset", str(1 << 63)),
]  # fmt: skip


@pytest.mark.parametrize(("code", "fields", "name", "value"), MALFORMED)
def test_a_malformed_field_is_refused_and_nothing_is_stored(
    broker: Daemon, code: int, fields: dict[str, str], name: str, value: object
) -> None:
    with RawPeer(broker.address) as peer:
        where = {"topic": TOPIC, "queueId": "0"}
        before = peer.ask(RequestCode.GET_MAX_OFFSET, where).fields
        reply = peer.ask(code, {**fields, name: value}, b"body")
        if name == "suspendTimeoutMillis":  # only read by a pull that has to wait
            assert reply.code == ResponseCode.PULL_OFFSET_MOVED
        else:
            assert reply.code == ResponseCode.SYSTEM_ERROR, reply
        assert peer.ask(RequestCode.GET_MAX_OFFSET, where).fields == before


def test_a_suspended_pull_with_a_bad_opaque_does_not_block_others(broker: Daemon) -> None:
    end = {"topic": TOPIC, "queueId": "3"}
    held = {**PULL, "queueId": "3", "sysFlag": "6", "suspendTimeoutMillis": "20000"}
    with RawPeer(broker.address) as bad, RawPeer(broker.address) as good:
        held["queueOffset"] = good.ask(RequestCode.GET_MAX_OFFSET, end).fields["offset"]
        header = {"code": RequestCode.PULL_MESSAGE, "extFields": held, "flag": 0, "opaque": "x"}
        bad.send(frame(orjson.dumps(header)))
        assert bad.receive() is None
        good.send(request(RequestCode.PULL_MESSAGE, held))
        with RawPeer(broker.address) as sender:
            sent = sender.ask(RequestCode.SEND_MESSAGE_V2, {**SEND, "e": "3"}, b"wakes it")
            assert sent.code == ResponseCode.SUCCESS
        reply = good.receive()
        assert reply is not None and reply.code == ResponseCode.SUCCESS
        assert b"wakes it" in reply.body


BAD_NAMES = ["../x", "..", "/etc/x", "a/b", "a\x00b", "a b", "", "x" * 300, "%RETRY%../x", "é"]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_an_invalid_topic_name_is_neither_created_nor_sent_to(broker: Daemon, name: str) -> None:
    before = _files(broker.folder.parent)
    with RawPeer(broker.address) as peer:
        for code, fields in (
            (RequestCode.UPDATE_AND_CREATE_TOPIC, {**CREATE, "topic": name}),
            (RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": name}),
            (RequestCode.SEND_MESSAGE_V2, {**SEND, "b": name}),
            (RequestCode.SEND_BATCH_MESSAGE, {**SEND, "b": name}),
            (RequestCode.UPDATE_CONSUMER_OFFSET,
             {"consumerGroup": "g", "topic": name, "queueId": "0", "commitOffset": "1"}),
        ):  # fmt: skip
            reply = peer.ask(code, fields, b"body")
            assert reply.code == ResponseCode.SYSTEM_ERROR, (code, reply)
            assert reply.remark
        # These requests only query: whatever they return, they create nothing.
        where = {"topic": name, "queueId": "0"}
        peer.ask(RequestCode.GET_MAX_OFFSET, where)
        peer.ask(RequestCode.GET_MIN_OFFSET, where)
        peer.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {**where, "timestamp": "0"})
        peer.ask(RequestCode.GET_EARLIEST_MSG_STORETIME, where)
        peer.ask(RequestCode.PULL_MESSAGE, {**PULL, "topic": name})
        peer.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": name})
    assert _files(broker.folder.parent) == before
    broker.assert_serves()


# Created up to a second after the request that needs it: by the traffic of an earlier test.
STATE_FILE = re.compile(r"/store/config/(subscriptionGroup|consumerOffset|delayOffset)\.json")
QUEUE_FILE = re.compile(r"/consumequeue/[%A-Za-z][%A-Za-z0-9_|-]{0,126}(/[0-9]+(/[0-9]{20})?)?")


def _files(folder: Path) -> set[str]:
    """The files and folders below, without those that the broker writes by itself from time to
    time.
    """
    found = {
        os.path.join(parent, name)
        for parent, folders, files in os.walk(folder)
        for name in (*folders, *files)
    }
    return {
        path
        for path in found
        if not path.endswith((".bak", ".tmp"))
        and not STATE_FILE.fullmatch(path, path.rfind("/store/"))
        and not QUEUE_FILE.fullmatch(path, path.rfind("/consumequeue/"))
    }


def test_a_body_over_the_limit_is_refused(broker: Daemon) -> None:
    with RawPeer(broker.address) as peer:
        for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
            reply = peer.ask(code, SEND, b"x" * (MAX_BODY + 1))
            assert reply.code == ResponseCode.MESSAGE_ILLEGAL
            assert "maxMessageSize" in reply.remark
        assert peer.ask(RequestCode.SEND_MESSAGE_V2, SEND, b"x" * MAX_BODY).code == 0


def test_a_broken_batch_is_refused_whole(broker: Daemon) -> None:
    with RawPeer(broker.address) as peer:
        where = {"topic": TOPIC, "queueId": "0"}
        before = peer.ask(RequestCode.GET_MAX_OFFSET, where).fields
        for body in (b"", b"abc", b"\x00\x00\x00\x10" * 4, b"\xff" * 64, struct.pack(">i", -5)):
            reply = peer.ask(RequestCode.SEND_BATCH_MESSAGE, {**SEND, "m": "true"}, body)
            assert reply.code in (ResponseCode.SYSTEM_ERROR, ResponseCode.MESSAGE_ILLEGAL), reply
        assert peer.ask(RequestCode.GET_MAX_OFFSET, where).fields == before


def test_a_queue_id_out_of_range_is_refused(broker: Daemon) -> None:
    with RawPeer(broker.address) as peer:
        for queue in ("4", "2147483647", "99999999999999"):
            sent = peer.ask(RequestCode.SEND_MESSAGE_V2, {**SEND, "e": queue}, b"body")
            assert sent.code == ResponseCode.SYSTEM_ERROR
            assert f"queueId[{queue}] is illegal" in sent.remark
        for queue in ("4", "-1", "2147483647"):
            pulled = peer.ask(RequestCode.PULL_MESSAGE, {**PULL, "queueId": queue})
            assert pulled.code == ResponseCode.SYSTEM_ERROR
            assert f"queueId[{queue}] is illegal" in pulled.remark


def test_a_pull_past_the_end_gets_the_offset_to_continue_at(broker: Daemon) -> None:
    with RawPeer(broker.address) as peer:
        assert peer.ask(RequestCode.SEND_MESSAGE_V2, {**SEND, "e": "1"}, b"body").code == 0
        where = {"topic": TOPIC, "queueId": "1"}
        end = peer.ask(RequestCode.GET_MAX_OFFSET, where).fields["offset"]
        for offset, start in (("1000000", end), (str((1 << 63) - 1), end), ("-7", "0")):
            reply = peer.ask(
                RequestCode.PULL_MESSAGE, {**PULL, "queueId": "1", "queueOffset": offset}
            )
            assert reply.code == ResponseCode.PULL_OFFSET_MOVED
            assert reply.fields["nextBeginOffset"] == start
            assert reply.body == b""


def test_a_setting_that_is_not_listed_is_refused_by_name(daemon: Daemon) -> None:
    code = (
        RequestCode.UPDATE_BROKER_CONFIG
        if daemon.kind == "broker"
        else RequestCode.UPDATE_NAMESRV_CONFIG
    )
    with RawPeer(daemon.address) as peer:
        own = "storePathRootDir" if daemon.kind == "broker" else "kvConfigPath"
        for name in (own, "listenPort", "no/such/setting"):
            reply = peer.ask(code, {}, f"{name}=/tmp/elsewhere\n".encode())
            assert reply.code in (ResponseCode.SYSTEM_ERROR, ResponseCode.NO_PERMISSION)
            assert name in reply.remark
        assert peer.ask(code, {}, b"\xff\xfe\x00=\xff").code != ResponseCode.SUCCESS


def test_a_flood_of_bad_requests_is_logged_once_a_second(daemon: Daemon) -> None:
    begin = len(daemon.log.read_bytes())
    started = time.monotonic()
    with RawPeer(daemon.address) as peer:
        code = RequestCode.SEND_MESSAGE_V2 if daemon.kind == "broker" else 105
        for _ in range(300):
            assert peer.ask(code, {}).code == ResponseCode.SYSTEM_ERROR
    for _ in range(100):
        with RawPeer(daemon.address) as peer:
            peer.send(NOT_FRAMES["garbage"])
            assert peer.receive() is None
    seconds = time.monotonic() - started
    written = daemon.log.read_bytes()[begin:].decode().splitlines()
    # A suspended machine is reported, too.
    lines = [line for line in written if not re.search(r"request \d+ of \S+ took", line)]
    about_us = [line for line in lines if "bad request from 127.0.0.1" in line]
    assert len(about_us) <= seconds + 2
    assert lines == about_us


def test_random_frames_neither_stop_nor_block_a_daemon(daemon: Daemon) -> None:
    before = _files(daemon.folder.parent) - _files(daemon.folder)
    chance = random.Random(20)
    codes = _answered_codes(daemon)
    assert len(codes) > 20
    for round_number in range(40):
        with RawPeer(daemon.address) as peer:
            # Every other connection also sends damaged frames, the first of which ends it.
            damage = round_number % 2 == 1
            peer.send(b"".join(_random_frame(chance, codes, damage) for _ in range(100)))
            if round_number % 8 == 0:
                daemon.assert_serves()
            _drain(peer.socket)
    assert _files(daemon.folder.parent) - _files(daemon.folder) == before
    assert "Traceback" not in daemon.log.read_text()


VALUES = [
    *("", "0", "1", "-1", "3", "65536", "2147483648", "9" * 30, "true", "null", "../x", "a", "*"),
    *(TOPIC, "TBW102", "group", "%RETRY%group", "a || b", "\x01\x02", "é" * 200),
]
FIELD_NAMES = sorted(
    {*SEND, *PULL, *CREATE, "namespace", "key", "value", "group", "timestamp", "offset", "msgId"}
    | {"brokerName", "brokerAddr", "clusterName", "haServerAddr", "brokerId", "clientID"}
    | {"begin", "end", "maxNum", "beginTimestamp", "endTimestamp", "index", "count", "bodyCrc32"}
)


def _answered_codes(daemon: Daemon) -> list[int]:
    with RawPeer(daemon.address) as peer:
        unknown = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        return [int(code) for code in RequestCode if peer.ask(code, {}).code != unknown]


def _random_frame(chance: random.Random, codes: list[int], damage: bool) -> bytes:
    """A frame that looks well formed; with `damage` one in twelve is not."""
    fields = {
        name: chance.choice(VALUES)
        for name in chance.sample(FIELD_NAMES, chance.randrange(len(FIELD_NAMES)))
    }
    base = chance.choice([SEND, PULL, CREATE, {}])
    body = chance.choice([b"", b"{}", b"[]", b'{"clientID":"x"}', b"null", b"a=b", b"\xff" * 40])
    data = bytearray(request(chance.choice(codes), {**fields, **base, **_some(chance)}, body))
    if damage and chance.randrange(12) == 0:
        data[chance.randrange(8, len(data))] ^= 1 << chance.randrange(8)
    return bytes(data)


def _some(chance: random.Random) -> dict[str, object]:
    values: list[object] = [*VALUES, 5, 1.5, True, None, -(1 << 62)]
    return {chance.choice(FIELD_NAMES): chance.choice(values) for _ in range(2)}


def _drain(connection: socket.socket) -> None:
    """End the output, and read the daemon's remaining data until it closes."""
    try:
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass
    except ConnectionResetError:
        pass  # it closed first, with unread data
    except OSError as error:
        if error.errno != errno.ENOTCONN:  # the same, seen by shutdown
            raise
