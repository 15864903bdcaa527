import logging
import os
from pathlib import Path

import pytest
import yaml

from mq.daemons.acl.errors import AclError
from mq.daemons.acl.files import AclFiles
from mq.daemons.broker.acl.access import AccessControl, AccountChange
from mq.daemons.config import ConfigError
from mq.protocol.bodies import ConsumerData, HeartbeatData, LockBatchRequestBody, SubscriptionData
from mq.protocol.codes import RequestCode as Code
from mq.protocol.command import Command
from tests.daemons.broker.acl.accounts import (
    ADMIN,
    PLAIN,
    USER,
    access_control,
    home,
    signed,
    whole,
)
from tests.daemons.own_records import own_records

SOMEWHERE = "172.16.0.1"


def send_to(topic: str) -> dict[str, str]:
    return whole(Code.SEND_MESSAGE_V2, {"b": topic})


def refusal(
    access: AccessControl,
    code: int,
    fields: dict[str, str],
    body: bytes = b"",
    host: str = SOMEWHERE,
) -> str:
    with pytest.raises(AclError) as error:
        access.check(Command(code, fields, body), host)
    return str(error.value)


def test_a_request_without_an_access_key_is_refused(tmp_path: Path) -> None:
    access = access_control(tmp_path)
    assert refusal(access, Code.PULL_MESSAGE, {}) == "No accessKey is configured"


def test_an_unknown_access_key_is_refused(tmp_path: Path) -> None:
    access = access_control(tmp_path)
    fields = signed(("nobody_here", b"12345678"))
    assert refusal(access, Code.HEART_BEAT, fields) == "No acl config for nobody_here"


@pytest.mark.parametrize("given", ["", "AAAA", "ü", None])
def test_a_wrong_signature_is_refused(tmp_path: Path, given: str | None) -> None:
    access = access_control(tmp_path)
    fields = signed(ADMIN, whole(Code.SEND_MESSAGE_V2, {"b": "topicB"}), b"body")
    fields.pop("Signature")
    if given is not None:
        fields["Signature"] = given
    assert (
        refusal(access, Code.SEND_MESSAGE_V2, fields, b"body")
        == "Check signature failed for accessKey=rocketmq2"
    )


def test_a_signature_does_not_hold_for_another_body_or_field(tmp_path: Path) -> None:
    access = access_control(tmp_path)
    fields = signed(ADMIN, whole(Code.SEND_MESSAGE_V2, {"b": "topicB"}), b"body")
    access.check(Command(Code.SEND_MESSAGE_V2, fields, b"body"), SOMEWHERE)
    assert "Check signature" in refusal(access, Code.SEND_MESSAGE_V2, fields, b"Body")
    fields["b"] = "topicC"
    assert "Check signature" in refusal(access, Code.SEND_MESSAGE_V2, fields, b"body")


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (Code.SEND_MESSAGE, {"topic": "topicB"}),
        (Code.SEND_MESSAGE_V2, {"b": "topicB"}),
        (Code.SEND_BATCH_MESSAGE, {"b": "topicB"}),
        (Code.SEND_MESSAGE_V2, {"b": "RMQ_SYS_TRACE_TOPIC"}),
        (Code.SEND_MESSAGE_V2, {"b": "%RETRY%groupC", "a": "CLIENT_INNER_PRODUCER"}),
        (Code.PULL_MESSAGE, {"topic": "topicC", "consumerGroup": "groupC"}),
        (Code.PULL_MESSAGE, {"topic": "topicC", "consumerGroup": "any_other"}),
        (Code.PULL_MESSAGE, {"topic": "%RETRY%groupC", "consumerGroup": "groupC"}),
        (Code.UPDATE_CONSUMER_OFFSET, {"topic": "topicB", "consumerGroup": "groupB"}),
        (Code.QUERY_MESSAGE, {"topic": "topicC", "_UNIQUE_KEY_QUERY": "true"}),
        (Code.GET_BROKER_RUNTIME_INFO, {}),
    ],
)
def test_permitted_requests_pass(tmp_path: Path, code: int, fields: dict[str, str]) -> None:
    access_control(tmp_path).check(Command(code, signed(USER, whole(code, fields)), b""), SOMEWHERE)


@pytest.mark.parametrize(
    ("code", "fields", "resource"),
    [
        (Code.SEND_MESSAGE, {"topic": "topicA"}, "topic:topicA"),
        (Code.SEND_MESSAGE, {"topic": "topicC"}, "topic:topicC"),
        (Code.SEND_MESSAGE_V2, {"b": "unlisted"}, "topic:unlisted"),
        (Code.SEND_BATCH_MESSAGE, {"b": "topicC"}, "topic:topicC"),
        (Code.SEND_MESSAGE_V2, {"b": "%RETRY%groupA", "a": "groupB"}, "group:groupA"),
        (Code.PULL_MESSAGE, {"topic": "topicA", "consumerGroup": "groupC"}, "topic:topicA"),
        (Code.PULL_MESSAGE, {"topic": "topicC", "consumerGroup": "groupA"}, "group:groupA"),
        (Code.LITE_PULL_MESSAGE, {"topic": "topicA", "consumerGroup": "groupC"}, "topic:topicA"),
        (Code.POP_MESSAGE, {"topic": "topicA", "consumerGroup": "groupC"}, "topic:topicA"),
        (Code.QUERY_MESSAGE, {"topic": "topicA"}, "topic:topicA"),
        (Code.CONSUMER_SEND_MSG_BACK, {"group": "groupA"}, "group:groupA"),
        (Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "groupA"}, "group:groupA"),
        (Code.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "groupA"}, "group:groupA"),
        (Code.UNREGISTER_CLIENT, {"consumerGroup": "groupA"}, "group:groupA"),
        (Code.UPDATE_CONSUMER_OFFSET, {"topic": "topicA", "consumerGroup": "groupB"}, "topic"),
    ],
)
def test_requests_without_permission_are_refused_by_name(
    tmp_path: Path, code: int, fields: dict[str, str], resource: str
) -> None:
    text = refusal(access_control(tmp_path), code, signed(USER, whole(code, fields)))
    assert text.startswith(f"No default permission for {resource}")


def test_the_subscriptions_of_a_heartbeat_are_checked(tmp_path: Path) -> None:
    access = access_control(tmp_path)
    for group, topic in (("groupA", "topicC"), ("groupC", "topicA")):
        subscription = SubscriptionData(topic=topic, sub_string="*")
        consumer = ConsumerData(group_name=group, subscription_data_set=[subscription])
        body = HeartbeatData(client_id="c", consumer_data_set=[consumer]).encode()
        assert "No default permission" in refusal(
            access, Code.HEART_BEAT, signed(USER, {}, body), body
        )


def test_a_lock_for_another_group_is_refused(tmp_path: Path) -> None:
    access = access_control(tmp_path)
    body = LockBatchRequestBody(consumer_group="groupA", client_id="c").encode()
    text = refusal(access, Code.LOCK_BATCH_MQ, signed(USER, {}, body), body)
    assert text == "No default permission for group:groupA"
    assert "cannot read" in refusal(access, Code.LOCK_BATCH_MQ, signed(USER, {}, b"["), b"[")


@pytest.mark.parametrize(
    "code",
    [
        Code.UPDATE_AND_CREATE_TOPIC,
        Code.UPDATE_BROKER_CONFIG,
        Code.DELETE_TOPIC_IN_BROKER,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        Code.DELETE_SUBSCRIPTIONGROUP,
        Code.UPDATE_AND_CREATE_ACL_CONFIG,
        Code.DELETE_ACL_CONFIG,
        Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        Code.INVOKE_BROKER_TO_RESET_OFFSET,
    ],
)
def test_only_an_administrator_may_change_shared_data(tmp_path: Path, code: int) -> None:
    access = access_control(tmp_path)
    assert refusal(access, code, signed(USER)) == (
        f"Need admin permission for request code={int(code)}, but accessKey=RocketMQ is not"
    )
    access.check(Command(code, signed(ADMIN), b""), SOMEWHERE)


def test_an_administrator_without_a_list_may_use_every_topic(tmp_path: Path) -> None:
    access = access_control(tmp_path)
    access.check(Command(Code.SEND_MESSAGE_V2, signed(ADMIN, send_to("topicA")), b""), SOMEWHERE)


def test_addresses_on_the_white_lists_need_no_signature(tmp_path: Path) -> None:
    access = access_control(tmp_path)
    access.check(Command(Code.SEND_MESSAGE_V2, {"b": "topicA"}, b""), "10.10.103.7")
    access.check(Command(Code.SEND_MESSAGE_V2, {"AccessKey": "rocketmq2"}, b""), "192.168.1.7")
    assert "No accessKey" in refusal(access, Code.SEND_MESSAGE_V2, {}, host="192.168.1.7")


def test_both_ways_to_sign_a_query_are_valid(tmp_path: Path) -> None:
    access = access_control(tmp_path)
    fields = whole(
        Code.QUERY_MESSAGE,
        {"topic": "topicC", "AccessKey": "RocketMQ", "_UNIQUE_KEY_QUERY": "true"},
    )
    from mq.protocol.signature import content, signature

    for full in (False, True):
        made = signature(USER[1], content(fields, b"", with_unique_key_query=full))
        access.check(Command(Code.QUERY_MESSAGE, {**fields, "Signature": made}, b""), SOMEWHERE)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("accounts:\n- accessKey: short\n  secretKey: abcdefgh\n", "length should longer than 6"),
        ("accounts:\n- accessKey: longenough\n  secretKey: hidden\n", "length should longer than"),
        ("accounts:\n- accessKey: longenough\n", "cannot be null"),
        ("accounts: 7\n", "accounts: expected a list"),
        ("accounts: [7]\n", "mapping"),
        ("- a\n", "mapping"),
        ("a: [\n", "not YAML in line 2"),
        ("a: !!python/object/apply:os.system [id]\n", "not YAML"),
        ("globalWhiteRemoteAddresses: [10.0.*]\n", "Netaddress examine scope"),
        (PLAIN.replace("topicA=DENY", "topicA"), "Parse resource permission failed for topic"),
    ],
)
def test_a_file_that_cannot_be_used_stops_the_start_and_shows_no_secret(
    tmp_path: Path, text: str, problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem) as error:
        access_control(tmp_path, text)
    assert "plain_acl.yml" in str(error.value)
    assert "hidden" not in str(error.value)


def test_without_a_file_it_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="rocketmqHome"):
        AccessControl(AclFiles(tmp_path, "conf/plain_acl.yml"))


def test_files_in_the_folder_apply_and_the_first_of_an_access_key_wins(tmp_path: Path) -> None:
    home(tmp_path)
    folder = tmp_path / "conf" / "acl" / "team"
    folder.mkdir(parents=True)
    (folder / "a.yml").write_text(
        "accounts:\n- accessKey: RocketMQ\n  secretKey: other_secret\n  admin: true\n"
        "- accessKey: second_user\n  secretKey: other_secret\n  defaultTopicPerm: PUB\n"
    )
    (folder / "tools.yml").write_text("accessKey: none\n")
    access = AccessControl(AclFiles(tmp_path, "conf/plain_acl.yml"))
    other = ("RocketMQ", b"other_secret")
    access.check(Command(Code.UPDATE_BROKER_CONFIG, signed(other), b""), SOMEWHERE)
    second = ("second_user", b"other_secret")
    access.check(Command(Code.SEND_MESSAGE_V2, signed(second, send_to("any")), b""), SOMEWHERE)
    assert set(access.versions()) == {folder / "a.yml", tmp_path / "conf" / "plain_acl.yml"}


def test_a_broken_file_leaves_the_rules_as_they_are_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    access = access_control(tmp_path)
    (tmp_path / "conf" / "plain_acl.yml").write_text("accounts: [{accessKey: 'hidden_word")
    access.reload()
    access.check(Command(Code.UPDATE_BROKER_CONFIG, signed(ADMIN), b""), SOMEWHERE)
    errors = own_records(caplog, "mq.daemons.acl", logging.ERROR)
    assert len(errors) == 1
    assert "keeping the old access control rules" in errors[0].getMessage()
    assert "hidden_word" not in errors[0].getMessage()


def test_a_change_of_the_file_applies_after_a_reload(tmp_path: Path) -> None:
    access = access_control(tmp_path)
    home(tmp_path, PLAIN.replace("topicA=DENY", "topicA=PUB"))
    access.reload()
    access.check(Command(Code.SEND_MESSAGE_V2, signed(USER, send_to("topicA")), b""), SOMEWHERE)


def change(**values: object) -> AccountChange:
    given = {"access_key": "new_account", "secret_key": "new_secret", **values}
    return AccountChange(**given)  # type: ignore[arg-type]


def test_an_account_is_created_changed_and_deleted_in_the_file(tmp_path: Path) -> None:
    access = access_control(tmp_path)
    path = tmp_path / "conf" / "plain_acl.yml"
    path.chmod(0o640)
    who = ("new_account", b"new_secret")
    access.update_account(change(topic_permissions=["T=PUB"], default_group_permission="SUB"))
    access.check(Command(Code.SEND_MESSAGE_V2, signed(who, send_to("T")), b""), SOMEWHERE)
    access.update_account(change(topic_permissions=["T=SUB"]))
    assert "topic:T" in refusal(access, Code.SEND_MESSAGE_V2, signed(who, send_to("T")))
    assert access.default_version().counter == 2
    stored = yaml.safe_load(path.read_text())
    assert stored["dataVersion"][0]["counter"] == 2
    assert stored["accounts"][-1]["defaultGroupPerm"] == "SUB"
    assert path.stat().st_mode & 0o777 == 0o640
    assert access.delete_account("new_account")
    assert not access.delete_account("new_account")
    assert "No acl config" in refusal(access, Code.SEND_MESSAGE_V2, signed(who, send_to("T")))
    assert os.listdir(path.parent) == ["plain_acl.yml"]
    assert "new_secret" not in path.read_text()


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"access_key": "short"}, "length should longer than 6"),
        ({"secret_key": None}, "cannot be null"),
        ({"topic_permissions": ["T"]}, "Parse Resource format error for T"),
        ({"group_permissions": ["G=ALL"]}, "Parse resource permission error for G=ALL"),
        ({"white_remote_address": "10.0.*"}, "Netaddress examine scope"),
    ],
)
def test_an_invalid_change_leaves_the_file_unchanged(
    tmp_path: Path, values: dict[str, object], problem: str
) -> None:
    access = access_control(tmp_path)
    with pytest.raises(AclError, match=problem):
        access.update_account(change(**values))
    assert (tmp_path / "conf" / "plain_acl.yml").read_text() == PLAIN


def test_global_addresses_are_set_in_a_file_of_ours_only(tmp_path: Path) -> None:
    access = access_control(tmp_path)
    outside = tmp_path / "outside.yml"
    outside.write_text("a: 1\n")
    inside = tmp_path / "conf" / "plain_acl.yml"
    for path in (str(outside), f"{tmp_path}/conf/../outside.yml", "/etc/passwd"):
        with pytest.raises(AclError, match="is not one of the ACL files"):
            access.update_global_addresses(["*"], path)
    assert outside.read_text() == "a: 1\n"
    access.update_global_addresses([SOMEWHERE], str(inside))
    access.check(Command(Code.UPDATE_BROKER_CONFIG, {}, b""), SOMEWHERE)
    assert "No accessKey" in refusal(access, Code.HEART_BEAT, {}, host="10.10.103.7")
