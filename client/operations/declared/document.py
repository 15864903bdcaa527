"""The file of `mq apply`: its format, reading and checks.

  cluster: DefaultCluster        # default for all objects; optional if there is only one cluster
  topics:
    Orders: {readQueueNums: 8, writeQueueNums: 8, perm: RW}
    Audit: {queues: 4, brokers: [broker-a]}
  groups:
    billing: {retryMaxTimes: 5}
  accounts:                      # of plain_acl.yml; secrets come from files or the environment
    - {accessKey: billing-app, secretKeyEnv: BILLING_SECRET, topicPerms: [Orders=SUB]}

A setting that is not listed stays unchanged, and has its default in a new object. Whether a topic
is ordered is not a setting here: brokers read it from the order configuration in the name servers
(mq updateOrderConf).

A word in the file is a string. YAML 1.1, as read by PyYAML, treats Off, No and Y as booleans, 1_000
and 1:30 as numbers and 2026-01-01 as a date, and keeps the last of two equal keys. This module uses
the core schema of YAML 1.2: true and false, numbers of digits, null, and text; a duplicate key is
an error.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from mq.client.operations.errors import Misdeclared
from mq.protocol import names
from mq.protocol.flags import Permission

_TOP = {"cluster", "topics", "groups", "accounts"}
_PERMISSIONS = {
    "R": Permission.READ,
    "W": Permission.WRITE,
    "RW": Permission.READ | Permission.WRITE,
    "-": 0,
}
# Settings by their names in the file, with attribute and type.
_TOPIC = {
    "readQueueNums": ("read_queue_nums", int),
    "writeQueueNums": ("write_queue_nums", int),
}
_GROUP = {
    "consumeEnable": ("consume_enable", bool),
    "consumeFromMinEnable": ("consume_from_min_enable", bool),
    "consumeBroadcastEnable": ("consume_broadcast_enable", bool),
    "retryQueueNums": ("retry_queue_nums", int),
    "retryMaxTimes": ("retry_max_times", int),
    "whichBrokerWhenConsumeSlowly": ("which_broker_when_consume_slowly", int),
    "notifyConsumerIdsChangedEnable": ("notify_consumer_ids_changed_enable", bool),
}
_ACCOUNT = {
    "whiteRemoteAddress": ("white_remote_address", str),
    "admin": ("admin", bool),
    "defaultTopicPerm": ("default_topic_perm", str),
    "defaultGroupPerm": ("default_group_perm", str),
    "topicPerms": ("topic_perms", list),
    "groupPerms": ("group_perms", list),
}


class NotYaml(ValueError):
    """The text is not YAML, or has a duplicate key. The message names the line."""


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, dict | list):
                raise NotYaml(f"{_place(key_node)}: a key is a mapping or a list")
            if key in found:
                raise NotYaml(f"{_place(key_node)}: {key!r} is there twice")
            found[key] = self.construct_object(value_node, deep=deep)
        return found


def _place(node: yaml.Node) -> str:
    return f"line {node.start_mark.line + 1}"


_Loader.yaml_implicit_resolvers = {}  # replaces those of 1.1
for _tag, _pattern, _first in (
    ("bool", r"(?:true|True|TRUE|false|False|FALSE)", "tTfF"),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", "-+0123456789"),
    ("float", r"[-+]?[0-9]+\.[0-9]+(?:[eE][-+]?[0-9]+)?", "-+0123456789"),
    ("null", r"(?:~|null|Null|NULL|)", ["~", "n", "N", ""]),
):
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(f"^{_pattern}$"), list(_first)
    )


def load(raw: bytes) -> Any:
    """Parse a text; None if it is empty. Raises NotYaml."""
    try:
        return yaml.load(raw, _Loader)  # a SafeLoader: plain values only
    except (yaml.YAMLError, ValueError) as error:
        if isinstance(error, NotYaml):
            raise
        raise NotYaml(f"not YAML: {str(error).splitlines()[0]}") from None


@dataclass(frozen=True)
class Declared:
    """A declared topic, group or account with its settings and brokers.

    Attributes:
        settings: by their attribute names in the wire bodies.
        brokers: names of brokers; empty for all of the cluster.
        secret_file, secret_variable: the source of an account's secret key.
    """

    kind: str
    name: str
    settings: Mapping[str, Any]
    cluster: str | None = None
    brokers: tuple[str, ...] = ()
    secret_file: str | None = None
    secret_variable: str | None = None


@dataclass
class Document:
    """All objects that a file declares."""

    declared: list[Declared] = field(default_factory=list)


def read(path: Path, raw: bytes) -> Document:
    """Read and check the content of a file.

    Raises Misdeclared, which names the position of the error.
    """

    try:
        content = load(raw)
    except NotYaml as error:
        raise _wrong(path, "", str(error)) from None
    reader = _Reader(path)
    top = reader.mapping("", content or {}, _TOP)
    cluster = reader.text("cluster", top.get("cluster"))
    document = Document()
    for name, settings in reader.named("topics", top.get("topics")):
        document.declared.append(reader.topic(name, settings, cluster))
    for name, settings in reader.named("groups", top.get("groups")):
        document.declared.append(reader.group(name, settings, cluster))
    for number, account in enumerate(reader.items("accounts", top.get("accounts"))):
        document.declared.append(reader.account(f"accounts[{number}]", account, cluster))
    return document


def _wrong(path: Path, place: str, why: str) -> Misdeclared:
    where = f"{path}: {place}: " if place else f"{path}: "
    return Misdeclared(where + why)


class _Reader:
    """Checks values; `place` is the position of a value, such as `topics.Orders.perm`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def topic(self, name: str, raw: Any, cluster: str | None) -> Declared:
        place = f"topics.{name}"
        self._legal(place, names.check_topic, name)
        more = {"queues", "perm", "cluster", "brokers"}
        given = self.mapping(place, raw or {}, {*_TOPIC, *more})
        settings = self._settings(place, given, _TOPIC)
        if "queues" in given:
            queues = self._value(f"{place}.queues", given["queues"], int)
            settings = {"read_queue_nums": queues, "write_queue_nums": queues, **settings}
        for key in ("read_queue_nums", "write_queue_nums"):
            if settings.get(key, 1) < 1:
                raise _wrong(self._path, place, f"{settings[key]} queues")
        if "perm" in given:
            settings["perm"] = self._permission(f"{place}.perm", given["perm"])
        return self._placed("topic", name, place, given, settings, cluster)

    def group(self, name: str, raw: Any, cluster: str | None) -> Declared:
        place = f"groups.{name}"
        self._legal(place, names.check_group, name)
        given = self.mapping(place, raw or {}, {*_GROUP, "cluster", "brokers"})
        settings = self._settings(place, given, _GROUP)
        return self._placed("group", name, place, given, settings, cluster)

    def account(self, place: str, raw: Any, cluster: str | None) -> Declared:
        more = {"accessKey", "secretKeyFile", "secretKeyEnv", "cluster", "brokers"}
        given = self.mapping(place, raw, {*_ACCOUNT, *more})
        name = self.text(f"{place}.accessKey", given.get("accessKey"))
        if not name:
            raise _wrong(self._path, place, "accessKey is missing")
        settings = self._settings(place, given, _ACCOUNT)
        declared = self._placed("account", name, place, given, settings, cluster)
        return Declared(
            **{
                **declared.__dict__,
                "secret_file": self.text(f"{place}.secretKeyFile", given.get("secretKeyFile")),
                "secret_variable": self.text(f"{place}.secretKeyEnv", given.get("secretKeyEnv")),
            }
        )

    def _placed(
        self,
        kind: str,
        name: str,
        place: str,
        given: Mapping[str, Any],
        settings: Mapping[str, Any],
        cluster: str | None,
    ) -> Declared:
        brokers = tuple(self.texts(f"{place}.brokers", given.get("brokers")))
        if "brokers" in given and not brokers:
            raise _wrong(self._path, f"{place}.brokers", "names none; leave it out to mean all")
        own = self.text(f"{place}.cluster", given.get("cluster"))
        return Declared(kind, name, settings, own or cluster, brokers)

    def _legal(self, place: str, check: Any, name: str) -> None:
        try:
            check(name)
        except names.IllegalName as error:
            raise _wrong(self._path, place, str(error)) from None

    def _settings(
        self, place: str, given: Mapping[str, Any], known: Mapping[str, tuple[str, type]]
    ) -> dict[str, Any]:
        return {
            attribute: self._value(f"{place}.{name}", given[name], kind)
            for name, (attribute, kind) in known.items()
            if name in given
        }

    def _value(self, place: str, value: Any, kind: type) -> Any:
        if kind is list:
            return self.texts(place, value)
        if type(value) is not kind:
            noun = {int: "a whole number", bool: "true or false", str: "text"}[kind]
            raise _wrong(self._path, place, f"{value!r} is not {noun}")
        return value

    def _permission(self, place: str, value: Any) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and value in (0, 2, 4, 6):
            return value
        if isinstance(value, str) and value.upper() in _PERMISSIONS:
            return int(_PERMISSIONS[value.upper()])
        raise _wrong(self._path, place, f"{value!r} is not RW, R, W or -")

    def mapping(self, place: str, value: Any, known: set[str]) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise _wrong(self._path, place, "is not a mapping")
        unknown = [name for name in value if name not in known]
        if unknown:
            raise _wrong(
                self._path, place, f"unknown {unknown[0]!r} (known: {', '.join(sorted(known))})"
            )
        return value

    def named(self, place: str, value: Any) -> list[tuple[str, Any]]:
        if value is None:
            return []
        if not isinstance(value, dict):
            raise _wrong(self._path, place, "is not a mapping of names")
        for name in value:
            if not isinstance(name, str):
                raise _wrong(self._path, place, f"the name {name!r} is not text: put it in quotes")
        return list(value.items())

    def items(self, place: str, value: Any) -> list[Any]:
        if value is None:
            return []
        if not isinstance(value, list):
            raise _wrong(self._path, place, "is not a list")
        return value

    def texts(self, place: str, value: Any) -> list[str]:
        return [self.text(place, item) or "" for item in self.items(place, value)]

    def text(self, place: str, value: Any) -> str | None:
        if value is not None and not isinstance(value, str):
            raise _wrong(self._path, place, f"{value!r} is not text")
        return value
