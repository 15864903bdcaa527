"""Ways to damage a store's log, each of which returns the number of lost messages; and its
repair."""

import asyncio
from pathlib import Path

from mq.daemons.broker.store import layout
from mq.daemons.broker.store.log.records import Record
from mq.daemons.broker.store.message_store import MessageStore
from mq.daemons.broker.store.tools import repair
from mq.daemons.broker.store.tools.offline import OfflineLog
from mq.daemons.broker.store.tools.verification import Verification, VerificationReport
from mq.protocol.record import RECORD_HEAD
from mq.protocol.tags import tags_code
from tests.daemons.broker.store.stores import LOG_FILE, put, settings, with_store

TOPIC = "Orders"
SLOTS = {"slots": 25}  # four items to a slot, so that verifying knows where items are
MESSAGES = 90  # in three files of the log


def properties(number: int) -> bytes:
    return b"KEYS\x01k%d\x02TAGS\x01a" % number


def written(root: Path) -> Path:
    """A store with messages in two queues."""

    async def work(store: MessageStore) -> None:
        for number in range(MESSAGES):
            key = (f"k{number}",)
            body = b"body %d" % number
            await put(
                store,
                TOPIC,
                number % 2,
                body,
                keys=key,
                properties=properties(number),
                tags_code=tags_code("a"),
            )

    with_store(root, work, **SLOTS)
    return root


def records_of(root: Path, number: int) -> list[Record]:
    """The records of a log file."""
    with OfflineLog([layout.commit_log_path(root)]) as log:
        start = number * LOG_FILE
        found = [item for item in log.walk() if isinstance(item, Record)]
    return [record for record in found if start <= record.physical < start + LOG_FILE]


def log_file(root: Path, number: int) -> Path:
    return layout.commit_log_path(root) / layout.file_name(number * LOG_FILE)


def overwrite(path: Path, position: int, data: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(position)
        file.write(data)


def destroy_a_size(root: Path) -> int:
    overwrite(log_file(root, 1), records_of(root, 1)[5].physical - LOG_FILE, b"\x7f")
    return 1


def flip_a_bit_of_a_body(root: Path) -> int:
    record = records_of(root, 1)[5]
    at = record.physical - LOG_FILE + RECORD_HEAD.size
    overwrite(log_file(root, 1), at, b"X")
    return 1


def zero_a_page(root: Path) -> int:
    first, *_, last = records_of(root, 1)[3:8]
    begin, end = first.physical - LOG_FILE, last.physical - LOG_FILE + last.size
    overwrite(log_file(root, 1), begin, bytes(end - begin))
    return 5


def lose_the_end_of_a_file(root: Path) -> int:
    records = records_of(root, 1)
    at = records[20].physical - LOG_FILE
    overwrite(log_file(root, 1), at, b"\xff" * (LOG_FILE - at))
    return len(records) - 20


def cut_a_file_off(root: Path, within: int = 0) -> int:
    records = records_of(root, 1)
    path = log_file(root, 1)
    with open(path, "r+b") as file:
        file.truncate(records[20].physical - LOG_FILE + within)
    return len(records) - 20


def cut_a_file_off_in_a_record(root: Path) -> int:
    return cut_a_file_off(root, 70)


def cut_a_file_off_at_the_begin_of_a_record(root: Path) -> int:
    return cut_a_file_off(root, 3)


def cut_a_file_off_in_its_blank(root: Path) -> int:
    with open(log_file(root, 1), "r+b") as file:
        file.truncate(LOG_FILE - 1)
    return 0


def destroy_a_blank(root: Path) -> int:
    end = records_of(root, 1)[-1]
    overwrite(log_file(root, 1), end.physical + end.size - LOG_FILE, b"\xff")
    return 0


def delete_a_file(root: Path) -> int:
    lost = len(records_of(root, 1))
    log_file(root, 1).unlink()
    return lost


def cut_a_file_off_and_delete_the_next(root: Path) -> int:
    records = records_of(root, 0)
    lost = len(records) - 20 + delete_a_file(root)
    with open(log_file(root, 0), "r+b") as file:
        file.truncate(records[20].physical)
    return lost


def empty_a_file_and_delete_the_next(root: Path) -> int:
    lost = len(records_of(root, 0)) + delete_a_file(root)
    log_file(root, 0).write_bytes(b"")
    return lost


def write_garbage_behind_the_end(root: Path) -> int:
    end = records_of(root, 2)[-1]
    at = end.physical + end.size - 2 * LOG_FILE
    overwrite(log_file(root, 2), at, b"garbage" * 20)
    return 0


def cut_the_last_file_off(root: Path) -> int:
    records = records_of(root, 2)
    with open(log_file(root, 2), "r+b") as file:
        file.truncate(records[3].physical - 2 * LOG_FILE)
    return len(records) - 3


def verified(root: Path) -> VerificationReport:
    with OfflineLog([layout.commit_log_path(root)]) as log:
        return Verification(root, log).run(lambda _: None)


def repaired(root: Path) -> list[str]:
    """Repair in place; returns the repair steps."""
    with OfflineLog([layout.commit_log_path(root)]) as log:
        repairs = repair.plan(root, log, Verification(root, log).run(lambda _: None))
        for item in repairs:
            item.do()
    asyncio.run(repair.recover(root, settings(root)))
    return [item.what for item in repairs]
