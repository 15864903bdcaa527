"""Decisions about batches while the broker of a topic, or of the decision log, is down."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from mq.client.admin import Admin
from mq.client.transport.blocking import BlockingSession, run
from tests.pipeline.conftest import require_streams

require_streams()


from mq.pipeline.decisions import open_log  # noqa: E402
from mq.pipeline.errors import CommitFailed, OptionError  # noqa: E402
from mq.pipeline.exactly_once import Transactions  # noqa: E402
from mq.pipeline.prepared import Prepared  # noqa: E402
from mq.pipeline.sink import check_target  # noqa: E402
from mq.pipeline.write_options import parse_write_options  # noqa: E402
from tests.pipeline.pairs import Pair, pair_in  # noqa: E402
from tests.pipeline.prepared import bodies_of, prepare, settle_quickly  # noqa: E402


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    settle_quickly(monkeypatch)


AT_FIRST = "Payments"  # a topic at broker-a only


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with pair_in(tmp_path) as pair:
        yield pair


def test_messages_of_an_absent_broker_do_not_count_as_missing(pair: Pair) -> None:
    options = parse_write_options(
        {
            "nameServer": pair.first.name_server,
            "topic": "Orders",
            "exactlyOnce": "true",
            "numRetries": "1",
            "retryIntervalMs": "50",
        }
    )
    prepared = [Prepared("Orders", "broker-b", -1, bytes(32))]
    with Transactions(options) as transactions:
        assert transactions._missing(prepared, {}) == prepared
        pair.second.stop()
        with pytest.raises(CommitFailed, match="broker-b of topic Orders does not answer"):
            transactions._missing(prepared, {})


def test_a_batch_is_not_committed_again_while_the_broker_of_the_log_is_down(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No name server knows the log then. A new one would be created at another broker, and be
    empty.
    """
    log = "mq-spark-commits"
    pair.create(pair.first.address, AT_FIRST)
    pair.create(pair.second.address, log)
    given = {"nameServer": pair.first.name_server, "topic": AT_FIRST, "exactlyOnce": "true"}
    options, query = parse_write_options(given), str(uuid.uuid4())
    with Transactions(options) as transactions:
        for batch in range(2):
            transactions.commit_once(query, batch, prepare(options, [f"{batch}"]))
    pair.second.stop()
    monkeypatch.setattr("mq.pipeline.decisions._START_SECONDS", 0.3)
    check_target(options, in_batches=True)
    again = prepare(options, ["1"])
    with Transactions(options) as transactions:
        with pytest.raises(CommitFailed, match="batch 1 may have been committed in it: start"):
            transactions.commit_once(query, 1, again)
        transactions.abort(query, 1, again)
    assert "is not rolled back" in caplog.text
    with BlockingSession(pair.first.name_server) as session:
        configs = run(Admin(session).topic_configs(pair.first.address)).topic_config_table
    assert log not in configs
    assert bodies_of(pair.first, AT_FIRST) == ["0", "1"]
    pair.second.start()
    monkeypatch.undo()
    monkeypatch.setattr("mq.pipeline.exactly_once._SETTLE_SECONDS", 0.2)
    with Transactions(options) as transactions:
        transactions.commit_once(query, 1, again)
    assert bodies_of(pair.first, AT_FIRST) == ["0", "1"]


def test_a_log_without_a_route_is_not_created_at_another_broker(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mq.pipeline.decisions._START_SECONDS", 0.3)
    log = "mq-spark-commits"
    pair.create(pair.second.address, log)
    given = {"nameServer": pair.first.name_server, "topic": "Orders", "exactlyOnce": "true"}
    options = parse_write_options(given)
    with BlockingSession(pair.first.name_server) as session:
        run(Admin(session).delete_topic_in_name_server(pair.first.name_server, log))
        with pytest.raises(OptionError, match="no name server knows"):
            open_log(session, options, 0)
        configs = run(Admin(session).topic_configs(pair.first.address)).topic_config_table
    assert log not in configs
