"""Halves that the native path prepares and commits: as by Python, byte for byte."""

import logging
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mq.daemons.broker.app import Broker
from mq.daemons.broker.store.log.append import Appender
from mq.daemons.broker.transactions.native_halves import NativeHalves
from mq.daemons.broker.transactions.service import Transactions
from mq.protocol.codes import ResponseCode
from mq.protocol.headers.transaction import ENDED
from mq.protocol.native import native
from tests.daemons.broker.native_pair import (
    FIELDS,
    HEADER,
    NOW,
    SMALL,
    Pair,
    counting,
    ended,
    framed,
    places_in,
    plain,
    stand_still,
)
from tests.daemons.broker.transactions.batches import end, prepare
from tests.daemons.broker.transactions.producers import TransactionPeer, operations, run

pytestmark = pytest.mark.skipif(native is None, reason="the native path is not built")

COMMIT, ROLLBACK = "8", "12"
GROUP = "TRAN_MSG\x01true\x02PGROUP\x01P"
OWN = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *("UNIQ_KEY", "UNIQ_KEY", "KEYS", "TAGS", "WAIT", "a", "é", "CLUSTER", "DELAY"),
                *("TIMER_DECK", "TIMER_X", "PGROUP", "TRAN_MSG", "REAL_TOPIC", "REAL_QID"),
            ]
        ),
        st.sampled_from(["\x01"] * 9 + [""]),
        st.sampled_from(
            ["k1 k2", "v", "true", "é😀", "", "\x01", "\x00", "9", "x" * 600, "v" * 32_300]
        ),
    ).map("".join),
    max_size=4,
    unique_by=lambda text: text[:5],
).map("\x02".join)
OWN |= OWN.map(lambda text: f"{text}\x02")
IDS = st.integers(0, 99_999).map("ID{}é".format) | st.just("ID")  # one is sent again
USUAL = st.builds(
    "{}UNIQ_KEY\x01{}".format, st.sampled_from(["", "TAGS\x01t\x02", "KEYS\x01k l\x02"]), IDS
)
COMMON = st.sampled_from(
    [
        *[GROUP] * 6,
        f"{GROUP}\x02WAIT\x01false",
        f"{GROUP}\x02a\x01common\x02TAGS\x01t",
        f"{GROUP}\x02TIMER_DECK\x011",
        f"{GROUP}\x02b\x01\x00",
        f"{GROUP}\x02b\x01{'x' * 1100}",
        "TRAN_MSG\x01true\x02PGROUP\x01Q",
        "TRAN_MSG\x01true",
    ]
)


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """A batch of prepared messages, mostly as a client sends it."""
    body = b""
    if draw(st.integers(0, 2)):
        common, own, damage, born = st.just(GROUP), USUAL, [0], NOW
    else:
        common, own, damage, born = COMMON, OWN, [0] * 20 + [1], 1 << draw(st.sampled_from([9, 63]))
    for _ in range(draw(st.integers(0, 6))):
        content, text = draw(st.binary(min_size=1, max_size=40)), draw(own).encode()[:33_000]
        size = 22 + len(content) + len(text) + draw(st.sampled_from(damage))
        body += struct.pack(">iiiii", size, 0, 0, draw(st.sampled_from([0, 5])), len(content))
        body += content + struct.pack(">H", len(text)) + text
    fields = {**FIELDS, "m": "true", "f": draw(st.sampled_from(["4", "4", "4", "52"]))}
    fields |= {"i": draw(common), "e": draw(st.sampled_from(["0", "1", "2"]))}
    fields |= {"j": draw(st.sampled_from(["0", "0", "0", "3", str(1 << 31)])), "g": str(born)}
    return framed({**HEADER, "code": 320, "extFields": fields}, body)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def _compare(pairs: list[Pair], root: Path, data: st.DataObject) -> None:
    if not pairs:
        given_settings = {**SMALL, "mappedFileSizeCommitLog": "100000"}
        pairs.append(Pair(root / str(len(list(root.iterdir()))), given_settings))
        pairs[0].compare([b"".join(plain(e=str(queue)) for queue in range(3))])
    try:
        sent = data.draw(st.lists(batches(), min_size=1, max_size=3))
        places = list(places_in(pairs[0].compare(sent))) or [(0, 0)]
        if data.draw(st.booleans()):  # as nearly all requests are
            pairs[0].compare([ended(places, "P", COMMIT)])
        for _ in range(data.draw(st.integers(1, 3))):
            subset = st.lists(st.sampled_from(places), min_size=1, max_size=12)
            some = data.draw(st.sampled_from([places, places[1:] or places, None])) or data.draw(
                subset
            )
            if data.draw(st.integers(0, 5)) == 0:
                wrong = data.draw(st.sampled_from([(0, 0), (1 << 62, 1), (-1, -1), (99_000, 2)]))
                some = [*some, wrong, *places]
            group = data.draw(st.sampled_from(["P"] * 5 + ["Q"]))
            pairs[0].compare(
                [ended(some, group, data.draw(st.sampled_from([COMMIT] * 3 + [ROLLBACK])))]
            )
    except BaseException:
        pairs.pop().close()  # they differ from now on
        raise


def test_the_native_path_commits_halves_like_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_still(monkeypatch.setattr)
    taken: Counter[str] = Counter()
    for name in ("prepare", "commit"):
        monkeypatch.setattr(NativeHalves, name, counting(name, taken))
    pairs: list[Pair] = []
    for _ in range(5):  # chance may draw few that are native
        _compare(pairs, tmp_path)
        if min(taken["prepare"], taken["commit"]) > 3:
            break
    assert min(taken["prepare"], taken["commit"]) > 3, taken
    for pair in pairs:
        ours, theirs = (broker.files() for broker in pair.brokers)
        pair.close()
        assert ours == theirs


def test_only_the_first_half_of_a_request_is_ended_by_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    commit_usual, append_batch = Transactions.commit_usual, Appender.append_batch

    def noted_commit(self: Transactions, *given: Any) -> None:
        seen.append("commit")
        commit_usual(self, *given)

    def noted_batch(self: Appender, *given: Any, **more: Any) -> tuple[list[int], int]:
        seen.append("batch")
        return append_batch(self, *given, **more)

    monkeypatch.setattr(Transactions, "commit_usual", noted_commit)
    monkeypatch.setattr(Appender, "append_batch", noted_batch)

    async def script(broker: Broker, peer: TransactionPeer) -> None:
        assert (await end(peer, await prepare(peer, b"the log has a file now"))).fields == {}
        seen.clear()
        bodies = [b"%d" % n for n in range(40)]
        places = await prepare(peer, *bodies)
        assert (await end(peer, places)).fields == {ENDED: "40"}
        assert (await peer.consumed())[1:] == bodies
        assert [one.body for one in operations(broker)] == [b"%d" % n for n in range(41)]
        assert len(broker.delivery.transactions.ledger) == 0

    run(tmp_path, script)
    assert seen == ["commit"]


def test_python_ends_halves_at_which_the_native_path_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError("as it may")

    async def script(broker: Broker, peer: TransactionPeer) -> None:
        path: Any = broker.delivery.transactions.native
        places = await prepare(peer, b"a", b"b", b"c")
        path._commit = fail
        assert (await end(peer, places)).fields == {ENDED: "3"}
        assert path._commit is path._prepare is None
        path._prepare = fail
        places = await prepare(peer, b"d", b"e")
        assert (await end(peer, places)).fields == {ENDED: "2"}
        assert path._prepare is None
        assert await peer.consumed() == [b"a", b"b", b"c", b"d", b"e"]

    with caplog.at_level(logging.ERROR):
        run(tmp_path, script)
    assert caplog.text.count("transactions stay in Python") == 2


def test_a_write_that_fails_leaves_all_halves_of_the_request_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def script(broker: Broker, peer: TransactionPeer) -> None:
        places = await prepare(peer, *(b"%d" % n for n in range(9)))
        file = broker.stores.messages.log.files[-1]
        with monkeypatch.context() as patch:

            def full(self: object, data: bytes, position: int) -> None:
                raise OSError(28, "No space left on device")

            patch.setattr(type(file), "write", full)
            assert (await end(peer, places)).code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert len(broker.delivery.transactions.ledger) == 9
        assert await peer.consumed() == []
        assert (await end(peer, places)).fields == {ENDED: "9"}
        assert await peer.consumed() == [b"%d" % n for n in range(9)]

    run(tmp_path, script)
