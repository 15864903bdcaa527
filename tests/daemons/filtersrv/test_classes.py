"""Classes in force: which ones stay, which are removed, and which requests wait."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mq.daemons.filtersrv import folder
from mq.daemons.filtersrv.classes import UNUSED_SECONDS, Classes, Key, NoClass, TooMany
from tests.daemons.filtersrv.servers import EVEN, filter_settings, without_seccomp

ODD = EVEN.replace(b"== 0", b"== 1")
FIRST, SECOND = Key("Orders", "first"), Key("Orders", "second")


class Time:
    """A clock that the test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def classes(time: Time | None = None, **settings: str) -> AsyncIterator[Classes]:
    kept = Classes(filter_settings("127.0.0.1:1", **settings), time or Time())
    try:
        yield kept
    finally:
        await kept.close()


def test_a_class_that_is_used_while_others_are_forgotten_stays() -> None:
    async def main() -> None:
        time = Time()
        async with classes(time) as at:
            await at.register(FIRST, "Even", EVEN)
            await at.register(SECOND, "Even", EVEN)
            sandbox = at.table[SECOND].sandbox
            time.now = UNUSED_SECONDS + 1
            forgetting = asyncio.ensure_future(at.remove_unused())
            await asyncio.sleep(0)  # it waits until the first sandbox has ended
            await at.register(SECOND, "Even", EVEN)
            await forgetting
            assert list(at.table) == [SECOND]
            assert sandbox is not None and not sandbox.has_ended

    asyncio.run(main())


def test_names_without_a_source_do_not_block_classes() -> None:
    async def main() -> None:
        async with classes(filterMaxClasses="2") as at:
            for number in range(5):
                await at.register(Key("Orders", f"stranger-{number}"), "Nothing", None, "no file")
            assert len(at.table) <= 2
            await at.register(FIRST, "Even", EVEN)
            await at.register(SECOND, "Even", EVEN)
            assert list(at.table) == [FIRST, SECOND]
            with pytest.raises(TooMany):
                await at.register(Key("Orders", "third"), "Nothing", None, "no file")

    asyncio.run(main())


def test_a_name_without_a_source_removes_no_class() -> None:
    async def main() -> None:
        async with classes() as at:
            await at.register(FIRST, "Even", EVEN)
            kept = at.table[FIRST]
            await at.register(FIRST, "Nothing", None, "no file")
            assert at.table[FIRST] is kept
            assert kept.sandbox is not None and not kept.sandbox.has_ended

    asyncio.run(main())


def test_if_sandboxes_have_become_impossible_not_every_pull_starts_a_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def main() -> None:
        async with classes() as at:
            await at.register(FIRST, "Even", EVEN)
            sandbox = at.table[FIRST].sandbox
            assert sandbox is not None
            await sandbox.close()
            without_seccomp(monkeypatch, tmp_path)
            monkeypatch.setattr("mq.daemons.filtersrv.classes.FIRST_PAUSE", 60.0)
            with pytest.raises(NoClass, match="this machine allows no sandbox"):
                await at.match(FIRST, b"", 0)
            with pytest.raises(NoClass, match="it will be restarted soon"):
                await at.match(FIRST, b"", 0)

    asyncio.run(main())


def test_a_check_of_the_folder_reverts_no_class_that_a_group_chose_meanwhile(
    tmp_path: Path,
) -> None:
    pipe = tmp_path / "Even.py"
    os.mkfifo(pipe)  # so that reading takes exactly as long as this test needs
    settings = filter_settings("127.0.0.1:1", filterClassFolder=str(tmp_path))

    async def main() -> None:
        async with classes() as at:
            await at.register(FIRST, "Even", EVEN)
            looking = asyncio.ensure_future(folder.check_folder(settings, at))
            await asyncio.sleep(0)
            await at.register(FIRST, "Odd", EVEN.replace(b"Even", b"Odd"))
            await asyncio.to_thread(pipe.write_bytes, ODD)
            await looking
            assert at.table[FIRST].name == "Odd"

    asyncio.run(main())


def test_a_caller_that_gives_up_while_a_sandbox_ends_leaves_no_process() -> None:
    async def main() -> None:
        async with classes() as at:
            upload = asyncio.ensure_future(at.register(FIRST, "Even", b"raise ValueError"))
            while not any(sandbox.has_ended for sandbox in at._sandboxes):  # noqa: ASYNC110
                await asyncio.sleep(0)
            upload.cancel()
            await asyncio.wait([upload])
            sandboxes = set(at._sandboxes)
        assert upload.cancelled()
        assert [sandbox.is_gone for sandbox in sandboxes] == [True]

    asyncio.run(main())


def test_classes_that_hang_while_they_load_do_not_block_restarts_of_others() -> None:
    hangs = b"while True: pass"

    async def main() -> None:
        async with classes() as at:
            await at.register(FIRST, "Even", EVEN)
            sandbox = at.table[FIRST].sandbox
            assert sandbox is not None
            await sandbox.close()
            uploads = [
                asyncio.ensure_future(at.register(Key("Orders", f"bad-{n}"), "Even", hangs))
                for n in range(8)
            ]
            while at._uploading.locked() is False:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.01)
            await at.match(FIRST, b"", 0)
            assert not any(upload.done() for upload in uploads)
            for upload in uploads:
                upload.cancel()
            await asyncio.wait(uploads)

    asyncio.run(main())
