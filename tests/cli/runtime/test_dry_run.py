"""`--dry-run`: changes of a cluster are shown, and not sent."""

import re
from pathlib import Path

import pytest

from mq.cli.show import changes_text
from mq.client.operations.changes import KEPT, Changes
from mq.daemons.standalone import Standalone
from mq.protocol.command import Command
from tests.cli.pairs import make_topic
from tests.cli.support import Mq

ROOT = Path(__file__).resolve().parents[3]


def topics(cluster: Mq) -> set[str]:
    return set(cluster("topicList").out.split())


def test_the_request_is_shown_and_not_sent(cluster: Mq, standalone: Standalone) -> None:
    shown = cluster("updateTopic", "-c", "DefaultCluster", "-t", "DryBorn", "-r", "3", "--dry-run")
    assert (shown.status, shown.err) == (0, "")
    assert shown.out == (
        f"UPDATE_AND_CREATE_TOPIC (17) to {standalone.broker.address}\n"
        "  topic = DryBorn\n"
        "  defaultTopic = TBW102\n"
        "  readQueueNums = 3\n"
        "  writeQueueNums = 8\n"
        "  perm = 6\n"
        "  topicFilterType = SINGLE_TAG\n"
        "  topicSysFlag = 0\n"
        "  order = false\n"
        "dry run: nothing was changed\n"
    )
    assert "DryBorn" not in topics(cluster)


def test_json_has_each_change_in_order(cluster: Mq, standalone: Standalone) -> None:
    options = ("-c", "DefaultCluster", "-t", "DryOrdered", "-o", "true", "--dry-run")
    shown = cluster("updateTopic", *options, "--output", "json").json
    first, second = shown["data"]
    assert shown["totals"] == {"changes": 2}
    assert (first["step"], first["request"], first["code"]) == (1, "UPDATE_AND_CREATE_TOPIC", 17)
    assert first["target"] == standalone.broker.address
    assert second["request"] == "PUT_KV_CONFIG"
    assert second["target"] == standalone.name_server_address
    assert second["header"]["key"] == "DryOrdered"
    assert second["body"] is None


def test_what_fails_before_any_change_fails_as_ever(cluster: Mq) -> None:
    finished = cluster("updateTopic", "-c", "NoCluster", "-t", "T", "--dry-run")
    assert (finished.status, finished.out) == (66, "")


def test_nobody_is_asked_in_a_dry_run(cluster: Mq) -> None:
    cluster("updateTopic", "-c", "DefaultCluster", "-t", "DryKept")
    shown = cluster("deleteTopic", "-c", "DefaultCluster", "-t", "DryKept", "--dry-run", typed="")
    assert "DELETE_TOPIC_IN_BROKER" in shown.out
    assert "?" not in shown.err
    assert "DryKept" in topics(cluster)


def test_a_read_has_no_dry_run(cluster: Mq) -> None:
    assert cluster("topicList", "--dry-run").status == 64


def test_no_command_makes_a_session_that_would_send() -> None:
    # `Call` makes those that know of --dry-run; PromptSession reads lines.
    makes = re.compile(r"(?<!Prompt)(?<!_)Session\(|(?:Producer|Consumer)\((?:call\.|self\.call\.)")
    made = {
        f"{source.name}: {line.strip()}"
        for folder in (ROOT / "cli", ROOT / "client" / "operations")
        for source in folder.rglob("*.py")
        if source.name not in ("call.py", "dry_run.py")
        for line in source.read_text("utf-8").splitlines()
        if makes.search(line)
    }
    assert made == set()


def test_a_change_whose_answer_is_read_does_not_end_the_run(cluster: Mq) -> None:
    finished = cluster("wipeWritePerm", "-b", "broker-a", "--dry-run")
    assert (finished.status, finished.err) == (0, "")
    assert "WIPE_WRITE_PERM_OF_BROKER" in finished.out


def test_secrets_are_masked_in_fields_bodies_and_properties() -> None:
    changes = Changes()
    changes.request("a:1", Command(50, {"accessKey": "someone", "secretKey": "hush1"}))
    changes.request(
        "a:1", Command(3001, {}, b'{"username":"u","password":"hush2","x":[{"token":1}]}')
    )
    changes.request("a:1", Command(25, {}, b"brokerName=b\nadminSecretKey=hush3\nx=1\n"))
    result = changes_text.result(changes)
    assert "someone" in str(result.plain)
    for form in (str(result.plain), str(result.data), str(result.rows)):
        assert "hush" not in form
        assert "******" in form


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("initAuthenticationUser", '{"username":"admin","password":"hush"}'),
        ("innerClientAuthenticationCredentials", '{"accessKey":"a","secretKey":"hush"}'),
        ("tls.server.keyPassword", "hush"),
        ("anything", '{"password":"hush"}'),
    ],
)
def test_settings_with_secrets_are_masked_in_a_dry_run(
    cluster: Mq, standalone: Standalone, name: str, value: str
) -> None:
    for command in ("updateBrokerConfig", "updateControllerConfig", "updateNamesrvConfig"):
        where = {
            "updateBrokerConfig": ["-b", standalone.broker.address],
            "updateControllerConfig": ["-a", standalone.broker.address],
            "updateNamesrvConfig": [],
        }[command]
        for form in ("plain", "json"):
            options = ["-k", name, "-v", value, "--dry-run", "-o", form]
            shown = cluster(command, *where, *options)
            assert shown.status == 0, shown.err
            assert "hush" not in shown.out and "******" in shown.out
            assert name in shown.out


def test_a_dry_run_says_what_it_could_not_look_at(
    cluster: Mq, standalone: Standalone, tmp_path: Path
) -> None:
    make_topic(standalone, "DryPart")
    file = tmp_path / "offsets.csv"
    lines = ["group,topic,brokerName,queueId,offset", "dry-part,DryPart,broker-a,0,0"]
    file.write_text("\n".join([*lines, "dry-part,DryPart,broker-z,0,0", ""]))
    shown = cluster("offset", "import", str(file), "--dry-run")
    assert shown.status == 1
    assert "dry run: nothing was changed" in shown.out
    assert "DryPart:broker-z:0: there is no such queue" in shown.err


def test_only_so_many_changes_are_kept_and_all_are_counted() -> None:
    changes = Changes()
    for _ in range(KEPT + 5):
        changes.request("a:1", Command(10, {"topic": "T"}, b"x"))
    result = changes_text.result(changes)
    assert len(result.rows) == KEPT
    assert result.totals == {"changes": KEPT + 5}
    assert f"SEND_MESSAGE: {KEPT + 5} in total" in str(result.plain)
