"""Requests of consumers to a filter server, byte by byte, with a real broker."""

import asyncio
import contextlib
import logging
import os
import signal
from pathlib import Path

import pytest

from mq.daemons.filtersrv import folder
from mq.daemons.filtersrv.classes import Key
from mq.protocol.codes import RequestCode, ResponseCode
from mq.protocol.headers.pull import PullMessageResponseHeader
from mq.protocol.message import decode_records
from tests import answered
from tests.daemons.filtersrv.servers import (
    EVEN,
    GROUP,
    TOPIC,
    pull,
    servers,
    upload,
    without_seccomp,
)
from tests.daemons.own_records import own_records
from tests.daemons.peer import Peer

KEY = Key(TOPIC, GROUP)


ODD = EVEN.replace(b"== 0", b"== 1")


@answered.by_filter_server(RequestCode.PULL_MESSAGE)
def test_a_pull_returns_the_messages_that_the_class_accepts() -> None:
    async def main() -> None:
        async with servers() as at, Peer(at.filters.port) as peer:
            await at.send(*(b"%d" % number for number in range(10)))
            assert (await upload(peer)).code == ResponseCode.SUCCESS
            found = await pull(peer)  # PULL_MESSAGE
            assert found.code == ResponseCode.SUCCESS
            messages = decode_records(found.body, check_crc=True)
            assert [(m.queue_offset, m.body) for m in messages] == [
                (number, b"%d" % number) for number in range(0, 10, 2)
            ]
            header = PullMessageResponseHeader.decode(found.fields)
            assert header.suggest_which_broker_id == 0
            assert (header.next_begin_offset, header.min_offset, header.max_offset) == (10, 0, 10)

    asyncio.run(main())


def test_results_of_the_broker_become_the_codes_of_java() -> None:
    async def main() -> None:
        async with servers() as at, Peer(at.filters.port) as peer:
            await at.send(b"1", b"3")
            await upload(peer)
            none_matches = await pull(peer)
            assert none_matches.code == ResponseCode.PULL_RETRY_IMMEDIATELY
            assert PullMessageResponseHeader.decode(none_matches.fields).next_begin_offset == 2
            illegal = await pull(peer, 5)
            assert illegal.code == ResponseCode.PULL_OFFSET_MOVED
            assert PullMessageResponseHeader.decode(illegal.fields).next_begin_offset == 2
            failed = await pull(peer, queue_id=7)
            assert failed.code == ResponseCode.SYSTEM_ERROR
            assert f"{TOPIC}@{GROUP}: the broker replied" in str(failed.remark)

    asyncio.run(main())


def test_a_pull_without_new_messages_waits_and_returns_a_status(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mq.daemons.filtersrv.broker_link.SUSPEND_MILLIS", 200)

    async def main() -> None:
        async with servers() as at, Peer(at.filters.port) as peer:
            await upload(peer)
            assert (await pull(peer)).code == ResponseCode.PULL_NOT_FOUND
            held = asyncio.ensure_future(pull(peer))
            await at.send(b"8")
            while (found := await held).code == ResponseCode.PULL_NOT_FOUND:
                held = asyncio.ensure_future(pull(peer))
            assert [message.body for message in decode_records(found.body)] == [b"8"]

    asyncio.run(main())


def test_without_a_class_a_pull_is_refused_with_the_reason() -> None:
    async def main() -> None:
        async with servers() as at, Peer(at.filters.port) as peer:
            found = await pull(peer)
            assert found.code == ResponseCode.SYSTEM_ERROR
            assert found.remark == (
                f"no class of {TOPIC}@{GROUP} is registered at this filter server"
            )

    asyncio.run(main())


def test_other_requests_are_not_supported() -> None:
    async def main() -> None:
        async with servers() as at, Peer(at.filters.port) as peer:
            reply = await peer.ask(RequestCode.GET_BROKER_CONFIG)
            assert reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED

    asyncio.run(main())


@answered.by_filter_server(RequestCode.REGISTER_MESSAGE_FILTER_CLASS)
def test_a_class_is_replaced_only_when_it_changes() -> None:
    async def main() -> None:
        async with servers() as at, Peer(at.filters.port) as peer:
            await at.send(b"1", b"2")
            table = at.filters.classes.table
            await upload(peer)  # REGISTER_MESSAGE_FILTER_CLASS
            sandbox = table[KEY].sandbox
            await upload(peer)
            assert table[KEY].sandbox is sandbox
            await upload(peer, ODD, crc=0)  # crc 0 asks for no replacement
            assert table[KEY].sandbox is sandbox
            await upload(peer, ODD)
            assert table[KEY].sandbox is not sandbox
            assert sandbox is not None and sandbox.has_ended
            found = await pull(peer)
            assert [message.body for message in decode_records(found.body)] == [b"1"]

    asyncio.run(main())


def test_classes_of_different_groups_are_separate() -> None:
    async def main() -> None:
        async with servers() as at, Peer(at.filters.port) as peer:
            await at.send(b"1", b"2")
            await upload(peer)
            await upload(peer, ODD, group="other")
            for group, body in ((GROUP, b"2"), ("other", b"1")):
                found = await pull(peer, group=group)
                assert [message.body for message in decode_records(found.body)] == [body]
            counts = at.filters.classes.table[KEY].counts
            assert (counts.messages, counts.seen) == (1, 2)
            assert counts.bytes > 0

    asyncio.run(main())


JAVA = b"""package org.example;
import org.apache.rocketmq.common.message.MessageExt;
public class Even implements MessageFilter {
    public boolean match(MessageExt message, FilterContext context) { return true; }
}
"""


@pytest.mark.parametrize(
    "source, name, crc, told",
    [
        (b"class Even:\n  def match(self, message):\n    return (\n", "Even", None,
         "class Even is refused: line 3: '(' was never closed"),
        (b"class Even:\n  def match(self, message)\n", "Even", None, "line 2: expected ':'"),
        (b"#" * 2_000_000, "Even", None,
         "it has 2000000 bytes, 65536 are allowed (filterClassMaxBytes)"),
        (EVEN, "Even", 5, "its CRC is"),
        (JAVA, "org.example.Even", None, "it is written in Java, but filters are Python here"),
        (JAVA.partition(b"\n")[2], "Even", None, "it is written in Java, but filters are Python"),
        (EVEN, "../Even", None, "'../Even' is not a class name"),
        (EVEN, "E" * 201, None, "is not a class name"),
        (EVEN, "", None, "'' is not a class name"),
        (EVEN, "Other", None, "the source has no class Other"),
        (b"import time; time.sleep(1000)", "Even", None, "it took more than"),
    ],
    ids=["unclosed", "syntax", "2 MB", "crc", "java", "no package", "path", "long", "none", "other",
         "endless"],
)  # fmt: skip
def test_a_class_that_cannot_be_used_is_refused_and_the_one_before_it_stays(
    source: bytes, name: str, crc: int | None, told: str
) -> None:
    async def main() -> None:
        millis = "4000" if source.startswith(b"import time;") else "30000"
        async with servers(filterLoadMillis=millis) as at, Peer(at.filters.port) as peer:
            assert (await upload(peer)).code == ResponseCode.SUCCESS
            reply = await upload(peer, source, name, crc=crc)
            assert reply.code == ResponseCode.SYSTEM_ERROR
            assert told in str(reply.remark)
            await at.send(b"2")
            found = await pull(peer)
            assert found.code == ResponseCode.SUCCESS, found.remark

    asyncio.run(main())


def test_a_class_that_hangs_is_ended_with_an_error_and_others_continue(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mq.daemons.filtersrv.classes.FIRST_PAUSE", 60.0)
    hangs = b"import time\nclass Even:\n    def match(self, message):\n        time.sleep(1000)\n"
    fast = {"filterBatchMillis": "3000", "filterMessageMillis": "1"}

    async def main() -> None:
        async with (
            servers(1, **fast) as at,
            Peer(at.filters.port) as peer,
            Peer(at.filters.port) as other,
        ):
            await at.send(b"1", b"2")
            await upload(peer, hangs)
            await upload(other, group="other")
            hanging = asyncio.ensure_future(pull(peer))
            for _ in range(3):
                assert (await pull(other, group="other")).code == ResponseCode.SUCCESS
            told = await hanging
            assert told.code == ResponseCode.SYSTEM_ERROR
            assert f"the sandbox of {TOPIC}@{GROUP} was ended: it took more than" in str(
                told.remark
            )
            again = await pull(peer)  # at once: it is not restarted repeatedly
            assert "it will be restarted soon" in str(again.remark)
            assert at.filters.classes.ends == 1
            await upload(peer, EVEN)
            assert (await pull(peer)).code == ResponseCode.SUCCESS

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert "it took more than" in caplog.text


def test_a_class_that_continues_after_its_reply_is_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    goes_on = (
        b"class Even:\n    def match(self, message):\n"
        b"        import os, struct, sys\n"
        b"        number = sys._getframe(2).f_locals['number']\n"
        b"        os.write(1, struct.pack('>BII', 0, number, 1) + b'\\1')\n"
        b"        while True: pass\n"
    )

    async def main() -> None:
        async with servers() as at, Peer(at.filters.port) as peer:
            await at.send(b"2")
            await upload(peer, goes_on)
            assert (await pull(peer)).code == ResponseCode.SUCCESS  # its valid replies count
            sandbox = at.filters.classes.table[KEY].sandbox
            assert sandbox is not None
            look = 0.2
            while not sandbox.has_ended and look < 30:  # on a busy machine it gets little CPU time
                monkeypatch.setattr("mq.daemons.filtersrv.app.CHECK_SECONDS", look)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(3 * look):
                        while not sandbox.has_ended:  # noqa: ASYNC110 - the loop hears of it
                            await asyncio.sleep(0.01)
                look *= 2
            assert sandbox.has_ended

    monkeypatch.setattr("mq.daemons.filtersrv.app.CHECK_SECONDS", 0.2)
    asyncio.run(main())


def test_a_class_that_raises_is_reported_with_the_line_and_used_again() -> None:
    source = b"class Even:\n    def match(self, message):\n        return 1 / int(message.body)\n"

    async def main() -> None:
        async with servers() as at, Peer(at.filters.port) as peer:
            await at.send(b"1", b"0", b"1")
            await upload(peer, source)
            found = await pull(peer)
            assert found.code == ResponseCode.SYSTEM_ERROR
            assert str(found.remark) == (
                f"{TOPIC}@{GROUP}: class Even: line 3: ZeroDivisionError: division by zero "
                "(queue 0, offset 1)"
            )
            assert (await pull(peer, 2)).code == ResponseCode.SUCCESS
            assert at.filters.classes.ends == 0

    asyncio.run(main())


@pytest.mark.parametrize("damage", [b"\0\0\0\x07", b"\0\0\xff\xff", None], ids=str)
def test_a_group_continues_after_a_message_that_is_damaged_on_disk(
    damage: bytes | None,
) -> None:
    """Damage its size, or its magic if `size` is None."""

    async def main() -> None:
        async with servers() as at, Peer(at.filters.port) as peer:
            await at.send(b"0", b"1", b"2", b"4")
            await upload(peer)
            (first,) = decode_records((await pull(peer, count=1)).body)
            store = Path(at.pair.broker.settings.store.store_path_root_dir)
            path = store / "commitlog" / f"{0:020}"
            third = first.physical_offset + 2 * first.store_size  # they have the same size
            with path.open("r+b") as file:
                file.seek(third + (4 if damage is None else 0))
                file.write(damage or b"none")
            got, offset = [], 0
            while offset < 4:
                found = await pull(peer, offset)
                assert found.code != ResponseCode.SYSTEM_ERROR, found.remark
                got += [message.body for message in decode_records(found.body)]
                before = offset
                offset = PullMessageResponseHeader.decode(found.fields).next_begin_offset
                assert offset > before
            assert got == [b"0", b"4"]

    asyncio.run(main())


def test_a_python_class_that_mentions_java_is_accepted() -> None:
    source = b'class Even:\n    """As in Java: class Even {"""\n' + EVEN.partition(b"\n")[2]

    async def main() -> None:
        async with servers() as at, Peer(at.filters.port) as peer:
            reply = await upload(peer, source)
            assert reply.code == ResponseCode.SUCCESS, reply.remark

    asyncio.run(main())


def test_a_sandbox_that_is_killed_while_idle_is_restarted() -> None:
    async def main() -> None:
        async with servers() as at, Peer(at.filters.port) as peer:
            await at.send(b"2")
            await upload(peer)
            sandbox = at.filters.classes.table[KEY].sandbox
            assert sandbox is not None
            os.kill(sandbox.pid, signal.SIGKILL)
            async with asyncio.timeout(30):
                while not sandbox.has_ended:  # noqa: ASYNC110 - the loop hears of it by itself
                    await asyncio.sleep(0.01)
            assert (await pull(peer)).code == ResponseCode.SUCCESS

    asyncio.run(main())


def test_a_consumer_that_disconnects_leaves_no_request_in_progress() -> None:
    hangs = b"class Even:\n    def match(self, message):\n        while True: pass\n"

    async def main() -> None:
        async with servers(filterBatchMillis="3000") as at:
            await at.send(b"2")
            async with Peer(at.filters.port) as peer:
                await upload(peer, hangs)
                asking = asyncio.ensure_future(pull(peer))
                await asyncio.sleep(0)
            asking.cancel()
            await asyncio.wait([asking])
            async with Peer(at.filters.port) as peer:
                await upload(peer, EVEN)
                assert (await pull(peer)).code == ResponseCode.SUCCESS
            dispatcher = at.filters.listener.dispatcher
            if dispatcher.tasks:
                await asyncio.wait(list(dispatcher.tasks))
            assert not dispatcher.tasks

    asyncio.run(main())


def test_while_uploads_are_off_classes_are_files_of_the_folder(tmp_path: Path) -> None:
    off = {"clientUploadFilterClassEnable": "false", "filterClassFolder": str(tmp_path)}

    async def main() -> None:
        async with servers(1, **off) as at, Peer(at.filters.port) as peer:
            await at.send(b"1", b"2")
            reply = await upload(peer, ODD)  # the uploaded source is ignored
            assert reply.code == ResponseCode.SYSTEM_ERROR
            assert "filterClassFolder has no file Even.py" in str(reply.remark)
            assert "class Even of Orders@billing is missing" in str((await pull(peer)).remark)
            (tmp_path / "Even.py").write_bytes(EVEN)
            await folder.check_folder(at.filters.settings, at.filters.classes)
            found = await pull(peer)
            assert [message.body for message in decode_records(found.body)] == [b"2"]
            (tmp_path / "Even.py").write_bytes(ODD)
            assert (await upload(peer, b"")).code == ResponseCode.SUCCESS
            found = await pull(peer)
            assert [message.body for message in decode_records(found.body)] == [b"1"]
            (tmp_path / "Even.py").write_bytes(b"class Even: (\n")
            await folder.check_folder(at.filters.settings, at.filters.classes)
            assert (await pull(peer)).code == ResponseCode.SUCCESS  # the previous one

    asyncio.run(main())


def test_without_sandboxes_classes_are_refused_with_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    without_seccomp(monkeypatch, tmp_path)

    async def main() -> None:
        async with servers() as at, Peer(at.filters.port) as peer:
            reply = await upload(peer)
            assert reply.code == ResponseCode.SYSTEM_ERROR
            assert "this machine allows no sandboxes, so no class can run" in str(reply.remark)
            assert not at.filters.classes.table
            assert "allows no sandbox" in at.filters.status_text()

    with caplog.at_level(logging.ERROR, "mq.daemons.filtersrv"):
        asyncio.run(main())
    records = own_records(caplog, "mq.daemons.filtersrv", logging.ERROR)
    assert [record.getMessage() for record in records] == [
        "this machine allows no sandboxes, so no class can run: pyseccomp is not installed "
        "(pip install 'mq[filtersrv]')"
    ]
