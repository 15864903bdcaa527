"""Create the stores of the Java broker again: `python -m tests.vectors.capture_store`.

A Java broker with small files gets messages and is killed or stopped. Its store is kept as an
archive: log, queues, index, checkpoint, and the file `abort` of the killed one. Needs a JDK and
Maven.
"""

import asyncio
import sys
import tarfile
import tempfile
import time
from pathlib import Path

from mq.client.transport.session import Session
from mq.protocol.codes import ResponseCode
from tests.interop.peers import JavaBroker
from tests.system.ledger import QUEUES, send_command

HERE = Path(__file__).parent
RELEASES = {"4.9": "4.9.7", "5.5": "5.5.0"}
MESSAGES = 16
SIZE = 600
SETTINGS = {
    "mapedFileSizeCommitLog": 8192,
    "mappedFileSizeCommitLog": 8192,
    "mapedFileSizeConsumeQueue": 60,
    "mappedFileSizeConsumeQueue": 60,
    "maxHashSlotNum": 10,
    "maxIndexNum": 40,
    "maxMessageSize": 4096,
    "timerWheelEnable": "false",
}
_KEPT = ("abort", "checkpoint", "commitlog", "consumequeue", "index")


async def _send(address: str) -> None:
    async with Session("127.0.0.1:1", timeout=10) as session:
        for number in range(MESSAGES):
            answer = await session.invoke(
                address, send_command(f"m{number}", number % QUEUES, SIZE)
            )
            assert answer.code == ResponseCode.SUCCESS, answer.remark


def _capture(release: str, target: Path, *, killed: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        store = Path(name) / "store"
        with JavaBroker(release, Path(name), "", SETTINGS, store=store) as broker:
            asyncio.run(_send(broker.address))
            time.sleep(3)  # until it has dispatched and flushed
            broker.kill() if killed else broker.stop()
        with tarfile.open(target, "w:xz") as archive:
            for part in _KEPT:
                if (store / part).exists():
                    archive.add(store / part, part, filter=_nobody)


def _nobody(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = info.mtime = 0
    info.uname = info.gname = ""
    return info


def main() -> None:
    wanted = sys.argv[1:] or list(RELEASES)
    for folder in wanted:
        for how in ("killed", "stopped"):
            target = HERE / folder / f"store-{how}.tar.xz"
            _capture(RELEASES[folder], target, killed=how == "killed")
            print(target.name, target.stat().st_size)


if __name__ == "__main__":
    main()
