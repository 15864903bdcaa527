import re
from pathlib import Path
from typing import Any

import pytest

from mq.testing import RunningBroker
from tests.cli.support import Finished, Mq

FILE = """
topics:
  Orders: {queues: 8, perm: RW}
  Audit: {readQueueNums: 2, writeQueueNums: 1, perm: R, brokers: [broker-a]}
groups:
  billing: {retryMaxTimes: 5, consumeBroadcastEnable: false}
"""
PLAIN_ACL = """
accounts:
  - accessKey: administrator
    secretKey: secret-of-admin
    admin: true
"""


@pytest.fixture
def mq(mq_broker: RunningBroker, tmp_path: Path) -> Mq:
    return Mq(tmp_path / "config", {"NAMESRV_ADDR": mq_broker.name_server})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.yaml"
    path.write_text(FILE)
    return path


def shown(done: Finished) -> list[tuple[str, str, str, str]]:
    rows: list[dict[str, Any]] = done.json["data"]
    return [(row["action"], row["kind"], row["name"], row["change"]) for row in rows]


def test_what_is_not_there_is_planned_and_made(mq: Mq, file: Path) -> None:
    everything = [
        ("create", "topic", "Orders", "readQueueNums 8, writeQueueNums 8, perm RW-"),
        ("create", "topic", "Audit", "readQueueNums 2, writeQueueNums 1, perm R--"),
        ("create", "group", "billing", "consumeBroadcastEnable false, retryMaxTimes 5"),
    ]
    done = mq("topic", "plan", "-f", str(file), "-o", "json")
    assert (done.status, shown(done)) == (1, everything)
    assert done.json["totals"] == {"create": 3, "change": 0}
    done = mq("apply", "-f", str(file), "-o", "json")
    assert (done.status, shown(done)) == (0, everything)
    done = mq("topic", "plan", "-f", str(file), "-o", "json")
    assert (done.status, shown(done)) == (0, [])
    assert shown(mq("apply", "-f", str(file), "-o", "json")) == []
    route = mq("topicRoute", "-t", "Audit", "-o", "json").json["data"]
    assert "R--" in str(route) or "'perm': 4" in str(route)


def test_only_what_differs_is_changed_and_the_rest_stays(
    mq: Mq, mq_broker: RunningBroker, file: Path
) -> None:
    arguments = ("updateSubGroup", "-b", mq_broker.address, "-g", "billing")
    assert mq(*arguments, "-r", "3", "-q", "2", "-d", "false").status == 0
    assert mq("updateTopic", "-b", mq_broker.address, "-t", "Orders", "-r", "4").status == 0
    done = mq("apply", "-f", str(file), "-o", "json")
    assert shown(done)[0] == ("change", "topic", "Orders", "readQueueNums 4 -> 8")
    assert shown(done)[2] == ("change", "group", "billing", "retryMaxTimes 3 -> 5")
    config = mq("getConsumerConfig", "-g", "billing").out
    assert re.search(r"retryQueueNums\s*=\s*2", config), config


def test_the_file_is_a_word_or_has_its_flag_or_comes_by_a_pipe(mq: Mq, file: Path) -> None:
    text = file.read_text()
    by_flag = shown(mq("topic", "plan", "-f", str(file), "-o", "json"))
    assert by_flag == shown(mq("topic", "plan", str(file), "-o", "json"))
    assert by_flag == shown(mq("topic", "plan", "-", "-o", "json", typed=text))
    assert by_flag
    assert mq("apply", "-", "--dry-run", typed=text).status == 0
    finished = mq("topic", "plan")
    assert finished.status == 64
    assert finished.err.startswith("mq topic plan: missing file\nhint: usage: mq topic plan FILE; ")


def test_a_dry_run_changes_nothing(mq: Mq, file: Path) -> None:
    done = mq("apply", "-f", str(file), "--dry-run")
    assert (done.status, "UPDATE_AND_CREATE_TOPIC" in done.out) == (0, True)
    assert mq("topic", "plan", "-f", str(file), "-o", "json").json["totals"]["create"] == 3


def test_accounts_get_secrets_from_the_environment(tmp_path: Path) -> None:
    conf = tmp_path / "home" / "conf"
    conf.mkdir(parents=True)
    (conf / "plain_acl.yml").write_text(PLAIN_ACL)
    keys = tmp_path / "tools.yml"
    keys.write_text("accessKey: administrator\nsecretKey: secret-of-admin\n")
    path = tmp_path / "cluster.yaml"
    path.write_text(
        "accounts:\n- {accessKey: billing-app, secretKeyEnv: BILLING, topicPerms: [Orders=SUB]}\n"
    )
    settings = {"aclEnable": "true", "rocketmqHome": str(tmp_path / "home")}
    with RunningBroker(tmp_path / "store", settings) as broker:
        mq = Mq(
            tmp_path / "config",
            {"NAMESRV_ADDR": broker.name_server, "MQ_ACL_FILE": str(keys)},
        )
        done = mq("apply", "-f", str(path))
        assert done.status == 78
        assert "account billing-app does not exist yet and has no secret key" in done.err
        done = mq("apply", "-f", str(path), "-o", "json", BILLING="secret-of-billing")
        assert (done.status, done.err) == (0, "")
        assert shown(done) == [("create", "account", "billing-app", "topicPerms Orders=SUB")]
        assert "secret-of-billing" not in done.out
        done = mq("topic", "plan", "-f", str(path), "-o", "json")
        assert (done.status, shown(done)) == (0, [])
    assert "secret-of-billing" in (conf / "plain_acl.yml").read_text()


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ("topics: [Orders]", "topics: is not a mapping of names"),
        ("topics: {Orders: {queue: 8}}", "topics.Orders: unknown 'queue' (known: brokers, "),
        ("topics: {Orders: {queues: many}}", "topics.Orders.queues: 'many' is not a whole number"),
        ("topics: {Orders: {queues: 0}}", "topics.Orders: 0 queues"),
        ("topics: {Orders: {perm: RWX}}", "topics.Orders.perm: 'RWX' is not RW, R, W or -"),
        ("topics: {'../x': {}}", "topics.../x: "),
        ("groups: {billing: {consumeEnable: 1}}", "groups.billing.consumeEnable: 1 is not true or"),
        ("accounts: [{}]", "accounts[0]: accessKey is missing"),
        ("topics: {a: b", "not YAML: "),
        ("topics: {Orders: {brokers: []}}", "topics.Orders.brokers: names none"),
        ("topics: {Orders: {brokers: }}", "topics.Orders.brokers: names none"),
        ("topics: {Orders: {queues: 1_000}}", "topics.Orders.queues: '1_000' is not a whole"),
        ("topics: {Orders: {queues: 010}}", "topics.Orders.queues: '010' is not a whole"),
        ("groups: {billing: {consumeEnable: no}}", "consumeEnable: 'no' is not true or false"),
        ("topics: {7: {}}", "topics: the name 7 is not text: put it in quotes"),
        ("topics:\n  A: {}\n  B: {}\n  A: {}", "line 4: 'A' is there twice"),
        ("topics: {A: {queues: 1, queues: 2}}", "line 1: 'queues' is there twice"),
        ("topics: {? [a] : {}}", "a key is a mapping or a list"),
        ("- a", "is not a mapping"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_place(
    mq: Mq, tmp_path: Path, content: str, place: str
) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(content)
    done = mq("topic", "plan", "-f", str(path))
    assert (done.status, place in done.err) == (78, True), done.err


def test_brokers_and_clusters_that_are_not_there_are_said(mq: Mq, tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("topics: {Orders: {brokers: [broker-z]}}")
    done = mq("apply", "-f", str(path))
    assert (done.status, "topic Orders: broker broker-z has no master now" in done.err) == (
        66,
        True,
    )
    path.write_text("cluster: Nowhere\ntopics: {Orders: {}}")
    done = mq("apply", "-f", str(path))
    assert (done.status, "no cluster 'Nowhere'" in done.err) == (66, True)
    done = mq("apply", "-f", str(tmp_path / "missing.yaml"))
    assert done.status == 66


@pytest.mark.parametrize("name", ["Off", "No", "y", "1_000", "2026-01-01", "1:30", "0x10"])
def test_a_name_is_what_the_file_says(mq: Mq, tmp_path: Path, name: str) -> None:
    path = tmp_path / "cluster.yaml"
    key = f'"{name}"' if ":" in name else name
    path.write_text(f"groups: {{{key}: {{retryMaxTimes: 5}}}}".replace(":30", "-30"))
    done = mq("topic", "plan", "-f", str(path), "-o", "json")
    assert [row["name"] for row in done.json["data"]] == [name.replace(":", "-")], done.err
