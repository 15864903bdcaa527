"""Current names for completion, and `mq __complete`, which never reports an error."""

import io
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from mq.cli.completion.names import matching
from mq.cli.runtime.env import Environment
from mq.daemons.standalone import Standalone
from tests.cli.support import Mq

DEAD = "127.0.0.1:1"


@pytest.fixture
def complete(cluster: Mq, tmp_path: Path) -> Mq:
    return cluster.having({"MQ_CACHE_DIR": str(tmp_path / "cache")})


def names(mq: Mq, kind: str, *words: str) -> list[str]:
    *before, prefix = words
    stream = io.StringIO()
    environment = Environment(stdin=stream, stdout=stream, stderr=stream, variables=mq.variables)
    return matching(kind, prefix, before, environment)


def cache(mq: Mq) -> Path:
    return Path(mq.variables["MQ_CACHE_DIR"])


def test_each_kind_has_its_names(complete: Mq, standalone: Standalone) -> None:
    complete("updateTopic", "-c", "DefaultCluster", "-t", "Completed")
    complete("updateSubGroup", "-c", "DefaultCluster", "-g", "completing-group")
    sent = complete("sendMessage", "-t", "Completed", "-p", "x", "-k", "key-a key-b")
    assert sent.status == 0
    assert "Completed" in names(complete, "topics", "")
    assert names(complete, "topics", "-t", "Complet") == ["Completed"]
    assert "completing-group" in names(complete, "groups", "")
    assert names(complete, "clusters", "") == ["DefaultCluster"]
    assert names(complete, "brokers", "") == ["broker-a"]
    assert names(complete, "addresses", "") == [standalone.broker.address]
    assert names(complete, "keys", "queryMsgByKey", "-t", "Completed", "-k", "") == [
        "key-a",
        "key-b",
    ]
    assert names(complete, "keys", "-k", "") == []
    assert names(complete, "nameServers", "") == [standalone.name_server_address]
    assert names(complete, "commands", "topic")[0] == "topicList"
    assert names(complete, "commands", "grou") == ["group"]


def test_groups_and_topics_of_the_system_are_the_last(complete: Mq) -> None:
    complete("updateSubGroup", "-c", "DefaultCluster", "-g", "zz-completing")
    complete("updateTopic", "-c", "DefaultCluster", "-t", "zz-completing")
    groups = names(complete, "groups", "")
    assert groups.index("zz-completing") < groups.index("CID_ONSAPI_OWNER")
    assert groups.index("zz-completing") < groups.index("TOOLS_CONSUMER")
    topics = names(complete, "topics", "")
    assert topics.index("zz-completing") < topics.index("SELF_TEST_TOPIC")
    assert topics.index("zz-completing") < topics.index("TBW102")


def test_the_topic_of_a_key_may_be_a_word(complete: Mq) -> None:
    complete("updateTopic", "-c", "DefaultCluster", "-t", "KeyWord")
    assert complete("sendMessage", "KeyWord", "x", "-k", "key-w").status == 0
    for words in (["queryMsgByKey"], ["message", "find"], ["--utc", "message", "find"]):
        assert names(complete, "keys", *words, "KeyWord", "") == ["key-w"]
    assert names(complete, "keys", "message", "find", "") == []


def test_jobs_are_known(complete: Mq) -> None:
    assert "count" in names(complete, "jobs", "spark", "submit", "c")


def test_contexts_are_known(complete: Mq) -> None:
    complete("context", "add", "prod", "-n", "10.0.0.1:9876")
    assert names(complete, "contexts", "context", "use", "p") == ["prod"]
    assert "10.0.0.1:9876" in names(complete, "nameServers", "-n", "10")


def test_the_cluster_is_the_one_that_the_line_names(complete: Mq) -> None:
    alive = complete.variables["NAMESRV_ADDR"]
    lost = complete.having({"NAMESRV_ADDR": DEAD})
    assert names(lost, "clusters", "clusterList", "-c", "") == []
    assert names(lost, "clusters", "-n", alive, "-c", "") == ["DefaultCluster"]
    assert names(lost, "clusters", f"--namesrvAddr={alive}", "-c", "") == ["DefaultCluster"]


def test_what_was_asked_is_kept_for_its_owner_only_and_used_while_nobody_answers(
    complete: Mq, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mq.cli.completion import names as completing

    assert names(complete, "clusters", "") == ["DefaultCluster"]
    (kept,) = cache(complete).iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(cache(complete).stat().st_mode) == 0o700

    def fail(*_: object) -> list[str]:
        raise ConnectionError

    monkeypatch.setitem(completing._FETCHERS, "clusters", fail)
    assert names(complete, "clusters", "") == ["DefaultCluster"]
    monkeypatch.setattr(completing, "FRESH", 0.0)
    assert names(complete, "clusters", "") == ["DefaultCluster"]
    monkeypatch.setattr(completing, "USABLE", 0.0)
    assert names(complete, "clusters", "") == []


def test_who_does_not_answer_is_not_asked_at_every_key(
    complete: Mq, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mq.cli.completion import names as completing

    asked = []

    def fail(*_: object) -> list[str]:
        asked.append(1)
        raise ConnectionError

    monkeypatch.setitem(completing._FETCHERS, "clusters", fail)
    assert [names(complete, "clusters", "") for _ in range(3)] == [[], [], []]
    assert len(asked) == 1
    monkeypatch.setattr(completing, "FRESH", 0.0)
    names(complete, "clusters", "")
    assert len(asked) == 2


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"clusters ": 3}', b'{"clusters ": [1]}'])
def test_a_broken_cache_is_asked_anew(content: bytes, complete: Mq) -> None:
    names(complete, "clusters", "")
    (kept,) = cache(complete).iterdir()
    kept.write_bytes(content)
    assert names(complete, "clusters", "") == ["DefaultCluster"]


def test_nothing_is_ever_wrong(complete: Mq) -> None:
    lines = ("", "nonesuch x", "topicRoute", "topicRoute -n no,address -t T", "topicRoute -o x y")
    for arguments in map(str.split, lines):
        finished = complete("__complete", *arguments)
        assert (finished.status, finished.err) == (0, "")
    unwritable = complete.having({"MQ_CACHE_DIR": "/dev/null/x"})
    assert names(unwritable, "clusters", "") == ["DefaultCluster"]
    lost = complete.having({"NAMESRV_ADDR": DEAD})
    finished = lost("__complete", "topicRoute", "-t", "")
    assert (finished.status, finished.out, finished.err) == (0, "names \n", "")


def test_it_imports_no_typer_and_no_command(complete: Mq) -> None:
    program = (
        "import io, os, sys\n"
        "from mq.cli.runtime.env import Environment\n"
        "from mq.cli.main import run\n"
        "environment = Environment(stdin=io.StringIO(), stdout=io.StringIO(),"
        " stderr=io.StringIO(), variables=os.environ)\n"
        "run(['__complete', 'topicRoute', ''], environment)\n"
        "print(*sorted(sys.modules))\n"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **complete.variables},
        capture_output=True,
        check=True,
        text=True,
    )
    modules = set(finished.stdout.split())
    assert not modules & {"typer", "rich", "asyncio", "pydantic", "mq.cli.runtime.options"}
    assert not [name for name in modules if name.startswith("mq.cli.commands.")]
