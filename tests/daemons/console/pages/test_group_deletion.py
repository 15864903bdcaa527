"""The description of the losses in a deletion of a group."""

from types import SimpleNamespace
from typing import cast

import pytest

from mq.daemons.console.call import Call
from mq.daemons.console.collector.snapshot import BrokerRow, Snapshot, TopicRow
from mq.daemons.console.pages.groups.deletion import plan_delete
from tests.daemons.tube.loops import in_loop


@pytest.mark.parametrize(
    ("stored", "line"),
    [
        (7, "7 messages of %DLQ%g are lost."),
        (None, "All messages of %DLQ%g are lost; their number is not known yet."),
        (0, None),
    ],
)
@in_loop
async def test_that_letters_are_lost_is_said_also_before_it_is_known_how_many(
    stored: int | None, line: str | None
) -> None:
    letters = TopicRow("%DLQ%g", "dlq", 1, 1, ("b",), 6, stored=stored)
    brokers = (BrokerRow("C", "b", 0, "127.0.0.1:1", "master", seen=1),)
    plan = await plan_delete(
        _call(Snapshot(1, brokers=brokers, topics=(letters,))),
        {"cluster": "C", "clean_offset": False},
    )
    assert [said for said in plan.lines if "lost" in said] == ([line] if line else [])


def _call(snapshot: Snapshot) -> Call:
    return cast(
        Call,
        SimpleNamespace(
            path={"group": "g"},
            text=lambda message, **values: message % values,
            cluster=SimpleNamespace(snapshot=snapshot),
        ),
    )
