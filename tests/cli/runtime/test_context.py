import io
import json
import stat
import subprocess
from pathlib import Path

import pytest

from tests.cli.support import Mq


def path_of(mq: Mq) -> Path:
    return Path(mq.variables["MQ_CONFIG_DIR"]) / "contexts.json"


def test_the_first_context_added_is_current(mq: Mq) -> None:
    assert mq("context", "add", "prod", "-n", "10.0.0.1:9876;10.0.0.2:9876").status == 0
    mq("context", "add", "test", "-n", "10.0.9.9:9876")
    files = {"aclFile": "", "tlsFile": ""}
    assert mq("context", "list", "-o", "json").json["data"] == [
        {"current": True, "name": "prod", "namesrvAddr": "10.0.0.1:9876;10.0.0.2:9876", **files},
        {"current": False, "name": "test", "namesrvAddr": "10.0.9.9:9876", **files},
    ]


def test_use_changes_what_show_shows(mq: Mq) -> None:
    mq("context", "add", "prod", "-n", "10.0.0.1:9876")
    mq("context", "add", "test", "-n", "10.0.9.9:9876")
    assert mq("context", "use", "test").status == 0
    assert mq("context", "show", "-o", "csv").out == (
        "current,name,namesrvAddr,aclFile,tlsFile\nTrue,test,10.0.9.9:9876,,\n"
    )


def test_removing_the_current_context_leaves_none_current(mq: Mq) -> None:
    mq("context", "add", "prod", "-n", "10.0.0.1:9876")
    assert mq("context", "remove", "prod").status == 0
    finished = mq("context", "show")
    assert finished.status == 64
    assert finished.err == (
        "mq context show: there is no current context\nhint: choose one: mq context use NAME\n"
    )


def test_an_unknown_context_names_the_known_ones(mq: Mq) -> None:
    mq("context", "add", "prod", "-n", "10.0.0.1:9876")
    for arguments in (("use", "prd"), ("remove", "prd"), ("show", "prd")):
        finished = mq("context", *arguments)
        assert finished.status == 66
        assert finished.err.startswith(
            f"mq context {arguments[0]}: no context 'prd' (known: prod)\nhint: "
        )


def test_adding_without_an_address_says_how(mq: Mq) -> None:
    finished = mq("context", "add", "prod")
    assert finished.status == 64
    assert finished.err.endswith("hint: mq context add prod -n HOST:9876\n")
    assert not path_of(mq).exists()


def test_the_file_is_for_its_owner_only(mq: Mq) -> None:
    mq("context", "add", "prod", "-n", "10.0.0.1:9876")
    assert stat.S_IMODE(path_of(mq).stat().st_mode) == 0o600
    assert list(path_of(mq).parent.iterdir()) == [path_of(mq)]


@pytest.mark.parametrize("content", ["{", "[]", '{"contexts": 3}', '{"contexts": {"a": 1}}'])
def test_a_broken_file_is_named_with_a_way_out(content: str, mq: Mq) -> None:
    path_of(mq).parent.mkdir()
    path_of(mq).write_text(content)
    finished = mq("context", "list")
    assert finished.status == 78
    assert str(path_of(mq)) in finished.err
    assert "hint: correct it, or remove it" in finished.err


def test_a_file_without_a_current_context_is_read(mq: Mq) -> None:
    path_of(mq).parent.mkdir()
    path_of(mq).write_text(json.dumps({"contexts": {"a": {"namesrvAddr": "h:1"}}}))
    assert (
        mq("context", "list", "-o", "csv").out
        == "current,name,namesrvAddr,aclFile,tlsFile\nFalse,a,h:1,,\n"
    )


def test_a_directory_that_cannot_be_written_is_reported(mq: Mq) -> None:
    path_of(mq).parent.write_text("a file where the directory would be")
    finished = mq("context", "add", "prod", "-n", "10.0.0.1:9876")
    assert finished.status in (73, 78)
    assert str(path_of(mq)) in finished.err


def test_a_context_keeps_the_path_of_an_access_key_and_never_shows_it(
    mq: Mq, tmp_path: Path
) -> None:
    keys = tmp_path / "keys.yml"
    keys.write_text("accessKey: rocketmq2\nsecretKey: hidden_secret\n")
    keys.chmod(0o644)
    refused = mq("context", "add", "prod", "-n", "10.0.0.1:9876", "--acl-file", str(keys))
    assert refused.status == 78
    assert f"hint: chmod 600 {keys}" in refused.err
    keys.chmod(0o600)
    added = mq("context", "add", "prod", "-n", "10.0.0.1:9876", "--acl-file", str(keys))
    assert added.status == 0
    shown = mq("context", "show", "prod", "-o", "json")
    assert shown.json["data"][0]["aclFile"] == str(keys)
    for text in (added.out, shown.out, path_of(mq).read_text()):
        assert "hidden_secret" not in text


@pytest.mark.parametrize("content", ["", "accessKey: rocketmq2\n", "secretKey: [hidden", "- a\n"])
def test_a_file_without_an_access_key_is_refused_by_name(
    mq: Mq, tmp_path: Path, content: str
) -> None:
    keys = tmp_path / "keys.yml"
    keys.write_text(content)
    finished = mq("topicList", "-n", "127.0.0.1:1", "--acl-file", str(keys))
    assert finished.status == 78
    assert str(keys) in finished.err
    assert "hidden" not in finished.err


def test_a_context_is_exported_for_a_shell_without_what_its_files_hold(
    mq: Mq, tmp_path: Path
) -> None:
    secrets = tmp_path / "it's.yml"
    secrets.write_text("accessKey: someone\nsecretKey: hush-hush\n")
    secrets.chmod(0o600)
    mq("context", "add", "prod", "-n", "10.0.0.1:9876;10.0.0.2:9876", "--acl-file", str(secrets))
    exported = mq("context", "export")
    assert exported.status == 0
    assert "hush" not in exported.out
    script = exported.out + 'printf "%s|" "$NAMESRV_ADDR" "$MQ_ACL_FILE" "${MQ_CONTEXT-unset}"'
    told = subprocess.run(
        ["sh", "-c", script], env={"MQ_CONTEXT": "other"}, capture_output=True, text=True
    )
    assert told.stdout == f"10.0.0.1:9876;10.0.0.2:9876|{secrets}|unset|"
    assert mq("context", "export", "prod", "-o", "json").json["data"][0] == {
        "variable": "NAMESRV_ADDR",
        "value": "10.0.0.1:9876;10.0.0.2:9876",
    }


def test_exporting_needs_a_context(mq: Mq) -> None:
    assert mq("context", "export").status == 64
    assert mq("context", "export", "nope").status == 66


def test_a_dry_run_writes_no_file(mq: Mq) -> None:
    finished = mq("context", "add", "prod", "-n", "10.0.0.1:9876", "--dry-run")
    assert finished.status == 0
    assert finished.out == f"add context prod at {path_of(mq)}\ndry run: nothing was changed\n"
    assert not path_of(mq).exists()


def test_half_an_access_key_in_the_environment_is_refused(mq: Mq) -> None:
    for half in ("MQ_ACCESS_KEY", "MQ_SECRET_KEY"):
        finished = mq.having({half: "hush-hush"})("topicList", "-n", "127.0.0.1:1")
        assert finished.status == 78
        assert "incomplete access key" in finished.err
        assert "hush" not in finished.err


def test_an_access_key_in_the_environment_signs_requests(mq: Mq) -> None:
    from mq.cli.runtime.call import resolve
    from mq.cli.runtime.env import Environment
    from mq.client.credentials import AccessKey

    variables = {**mq.variables, "MQ_ACCESS_KEY": "someone", "MQ_SECRET_KEY": "hush"}
    stream = io.StringIO()
    environment = Environment(stdin=stream, stdout=stream, stderr=stream, variables=variables)
    assert resolve(environment, "topicList", {}).credentials() == AccessKey("someone", "hush")
