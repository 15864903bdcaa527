"""The records that a pull gets."""

from pathlib import Path

from mq.daemons.broker.store import layout
from mq.testing import RunningBroker
from tests.cli.support import Mq


def test_a_record_in_the_place_of_a_lost_message_is_not_returned(tmp_path: Path) -> None:
    """All records are as long as the lost one, so that the lengths in the entries show nothing."""
    small = {"mappedFileSizeCommitLog": "65536"}  # it is read to its end
    with RunningBroker(tmp_path, small) as broker:
        broker.create_topic("Orders", queues=1)
        for number in range(5):
            broker.send("Orders", b"order %d" % number)
    store = tmp_path / "store"
    log = layout.commit_log_path(store) / layout.file_name(0)
    with open(log, "r+b") as file:
        file.seek(file.read(2000).index(b"order 1"))
        file.write(b"damaged")
    assert Mq(tmp_path)("store", "repair", str(store), "--yes").status == 0
    with RunningBroker(tmp_path, small) as broker:
        found = broker.messages("Orders")
        assert [(message.queue_offset, message.body) for message in found] == [
            (number, b"order %d" % number) for number in (0, 2, 3, 4)
        ]
